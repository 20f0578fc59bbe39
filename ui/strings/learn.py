"""The words of the tab "Learn"; part of the one table in `ui.strings`."""

from __future__ import annotations

LEARN: dict[str, tuple[str, str]] = {
    "learn.title": ("How it works, in eight steps", "八步弄懂推测解码"),
    "learn.lead": (
        "Each step is short, and each has something to try on this machine. Before you try it, it shows what was recorded on another one, and says so.",
        "每一步都很短，每一步都可以在这台机器上亲手试。还没试之前，先放上别的机器录下的数据，并会注明。",
    ),
    "learn.path": ("The steps", "步骤"),
    "learn.stop": ("Stop", "停止"),
    "learn.stopped": ("Stopped; what was measured until then is shown.", "已停止；下面是停下之前测到的。"),
    "learn.working": ("At work on it", "正在运行"),
    "learn.left": ("about {left} s left", "大约还要 {left} 秒"),
    "learn.recorded": ("Recorded on {date}: {where}.", "录制于 {date}：{where}。"),
    "learn.reference": ("Measured on the reference machine, {date}: {where}.", "参考机器上测得，{date}：{where}。"),
    "learn.here": ("Measured here, just now: {where}.", "刚刚在这里测得：{where}。"),
    "learn.disturbed": (
        "Other replies were written meanwhile, so these times are too long: measure again when it is quiet.",
        "测的时候还有别的回答在写，所以时间偏长：等空闲时再测一次。",
    ),
    "learn.nothing": ("Nothing was measured. Try it again.", "什么也没测到，请再试一次。"),
    "learn.unanswered": (
        "The server does not answer: is it still running? Try again.",
        "服务器没有回应：它还在运行吗？请再试一次。",
    ),
    # 1: one token at a time
    "learn.step.token": ("One token at a time", "一次只写一个 token"),
    "learn.step.token.text": (
        "A language model writes token by token: a word, or a piece of one. For each it goes through all of its weights once, gets a "
        "probability for every token it knows, picks one, appends it, and starts over.",
        "语言模型是一个 token 一个 token 往下写的（一个 token 是一个词，或者词的一部分）。每写一个，都要把全部权重过一遍，"
        "算出词表里每个 token 的概率，选一个，接到后面，然后从头再来。",
    ),
    "learn.step.token.more": (
        "The next pass needs the token of this one, so passes cannot run side by side. That is why long answers take long.",
        "下一遍要用到这一遍写出的 token，所以没法同时算几遍。回答越长，等得越久，原因就在这里。",
    ),
    "learn.token.go": ("Write 24 tokens here, one by one", "在这里逐个写 24 个 token"),
    "learn.token.result": (
        "One token took {median}: the middle of {count} passes, from {low} to {high}. {count} tokens needed {count} passes.",
        "写一个 token 要 {median}：这是 {count} 遍的中位数，最快 {low}，最慢 {high}。写 {count} 个 token，就算了 {count} 遍。",
    ),
    "learn.token.list": ("Each token, and how long its pass took", "每个 token，和写它用的时间"),
    # 2: memory or arithmetic
    "learn.step.bound": ("Waiting for memory: why checking is nearly free", "时间花在等内存：为什么核对几乎不花钱"),
    "learn.step.bound.text": (
        "A pass costs two things: moving the weights from memory to the cores, and calculating with them. For one token all weights "
        "are moved and each is used once; the cores mostly wait. That is called memory-bound.",
        "算一遍要付两笔账：把权重从内存搬到计算核心，再拿它们做乘加。只写一个 token 时，全部权重搬一遍，每个只用一次，"
        "核心大部分时间都在等。这叫“受内存限制”。",
    ),
    "learn.step.bound.more": (
        "Several rows (tokens) in one pass use the moved weights again, so the second and third cost little. With many rows the "
        "calculating takes longer than the moving: compute-bound, and every further row costs its full share.",
        "一遍里同时算几行（几个 token），搬来的权重可以接着用，所以第二行、第三行便宜得多。行数再多，计算就比搬运慢了，"
        "这叫“受算力限制”，这时每多一行都要付足价钱。",
    ),
    "learn.bound.go": ("Measure 1 to 256 rows here", "在这里测 1 到 256 行"),
    "learn.bound.chart": (
        "Time of a forward pass by its number of rows, both axes in doublings",
        "一遍前向计算的时间随行数的变化，两条轴都按倍数画",
    ),
    "learn.bound.rows": ("rows", "行数"),
    "learn.bound.ms": ("ms", "毫秒"),
    "learn.bound.times": ("× one row", "是一行的几倍"),
    "learn.bound.each": ("ms a row", "每行毫秒"),
    "learn.bound.measured": ("measured", "实测"),
    "learn.bound.floor": ("memory floor: reading the weights once", "内存下限：把权重读一遍"),
    "learn.bound.compute": ("compute line: calculating alone", "算力线：只算计算"),
    "learn.bound.floor.ms": ("floor, ms", "内存下限，毫秒"),
    "learn.bound.compute.ms": ("calculating, ms", "计算，毫秒"),
    "learn.bound.table": ("Time of a forward pass by its rows", "一遍前向计算的时间，按行数"),
    "learn.bound.result": (
        "{few} rows in one pass take {times} times as long as one row, where {few} passes would take {few} times as long. "
        "With {many} rows it is {most} times.",
        "一遍算 {few} 行，用时是算一行的 {times} 倍；分成 {few} 遍算，就是 {few} 倍。一遍算 {many} 行，则是 {most} 倍。",
    ),
    "learn.bound.none": (
        "Nothing has been measured yet: press the button.",
        "还没有测过：按一下按钮。",
    ),
    # 3: draft
    "learn.step.draft": ("Draft: somebody cheap guesses ahead", "起草：让便宜的先猜"),
    "learn.step.draft.text": (
        "A drafter, much cheaper than the big model (the target), writes the next K tokens. Take “what color is the sun?” and K = 3.",
        "草稿模型比大模型（目标模型）便宜得多，由它先往下写 K 个 token。拿“what color is the sun?”（太阳是什么颜色）来说，取 K = 3。",
    ),
    "learn.draft.so_far": ("So far: “The sun”", "已经写下：“The sun”"),
    "learn.draft.guess": ("Guess {number}", "第 {number} 个猜测"),
    "learn.draft.sure": ("the drafter is sure of it: probability high", "草稿模型很有把握：概率高"),
    "learn.draft.note": (
        "These are guesses and nothing more. None of them is in the answer yet.",
        "这些只是猜测，一个都还没写进回答。",
    ),
    "learn.story.again": ("Step through it", "一步一步看"),
    "learn.story.next": ("Next", "下一步"),
    # 4: verify
    "learn.step.verify": ("Verify: one pass checks all of them", "验证：一遍核对全部"),
    "learn.step.verify.text": (
        "The target runs once over the text with all guesses appended: K + 1 rows, nearly free as step 2 showed. That gives its own "
        "probabilities at every place. Then each guess is decided from left to right.",
        "目标模型把文字和所有猜测接在一起，只算一遍：K + 1 行，第二步说过，这几乎不多花时间。每个位置上它自己的概率就都有了，"
        "然后从左到右，逐个判定猜测。",
    ),
    "learn.verify.table": ("The three guesses, and what becomes of them", "三个猜测，各自的结果"),
    "learn.verify.token": ("token", "token"),
    "learn.verify.draft": ("draft probability", "草稿概率"),
    "learn.verify.target": ("target probability", "目标概率"),
    "learn.verify.decision": ("decision", "判定"),
    "learn.high": ("high", "高"),
    "learn.medium": ("medium", "中"),
    "learn.low": ("low", "低"),
    "learn.verify.accepted": ("accepted", "接受"),
    "learn.verify.rejected": ("rejected", "拒绝"),
    "learn.verify.discarded": (
        "discarded: it stands behind a rejection, so nobody looks at it",
        "丢弃：它前面的猜测被拒绝了，不用再看",
    ),
    "learn.verify.recovered": ("the target's own token instead", "换上目标模型自己的 token"),
    "learn.verify.outcome": (
        "One pass, two tokens: “is” was guessed, and the target put its own “yellow” in place of “orange”. The next round starts behind it.",
        "算一遍，写下两个 token：“is”是猜中的，“orange”换成了目标模型自己的“yellow”。下一轮从这里接着猜。",
    ),
    "learn.verify.real": ("Now your sentence, with the real model", "换成你的句子和真模型"),
    "learn.verify.prompt": ("Ask something", "问点什么"),
    "learn.verify.go": ("Run three rounds", "跑三轮"),
    "learn.verify.shown": (
        "Round by round, with the probabilities that decided. Press a token to see why.",
        "一轮一轮看，判定用的概率都在。点一个 token 看原因。",
    ),
    "learn.verify.settings": (
        "K = 3, temperature 0.8, rejection sampling, whoever drafts best here.",
        "K = 3，温度 0.8，拒绝采样，用这里最好的草稿模型。",
    ),
    "learn.verify.unguessed": (
        "Nobody guessed anything here, so there is nothing to check: try another sentence.",
        "这里没有人猜，也就没有可核对的：换一句试试。",
    ),
    # 5: rejection sampling
    "learn.step.rule": ("The rule that changes nothing: rejection sampling", "什么也不改变的规则：拒绝采样"),
    "learn.step.rule.text": (
        "A guess is kept with probability min(1, target ÷ draft). If it is rejected, a token is drawn from the residual: what the target "
        "gives a token more than the drafter did, scaled up to 1. What comes out follows the target's probabilities exactly, however bad the drafter is.",
        "猜测被接受的概率是 min(1, 目标概率 ÷ 草稿概率)。如果被拒绝，就从“剩余分布”里抽一个：目标概率比草稿概率多出来的部分，"
        "放大到合计为 1。这样写出来的 token，严格服从目标模型的分布，草稿再差也一样。",
    ),
    "learn.step.rule.more": (
        "Move the sliders, run 10,000 trials, then break the rule and watch it fail.",
        "拖动滑块，试 10,000 次；再把规则改坏，看看会怎样。",
    ),
    "learn.rule.table": ("“The sun is …”: four words to choose from", "“The sun is …”：四个词可选"),
    "learn.rule.word": ("word", "词"),
    "learn.rule.draft": ("drafter", "草稿"),
    "learn.rule.target": ("target", "目标"),
    "learn.rule.accept": ("kept with", "接受概率"),
    "learn.rule.residual": ("residual", "剩余分布"),
    "learn.rule.emitted": ("comes out", "写出的概率"),
    "learn.rule.trials": ("of 10,000", "10,000 次中"),
    "learn.rule.weight.draft": ("Drafter's weight", "草稿给的权重"),
    "learn.rule.weight.target": ("Target's weight", "目标给的权重"),
    "learn.rule.which": ("Rule", "规则"),
    "learn.rule.right": ("the right one", "正确的规则"),
    "learn.rule.always": ("broken: accept every guess", "改坏：猜什么都接受"),
    "learn.rule.redraw": ("broken: after a rejection draw from the target itself", "改坏：拒绝之后直接照目标分布抽"),
    "learn.rule.go": ("Run 10,000 trials", "试 10,000 次"),
    "learn.rule.kept": (
        "A guess is kept in {kept} of cases on average.",
        "平均有 {kept} 的猜测被接受。",
    ),
    "learn.rule.lands": (
        "It lands on the target: no word is off by more than {most} percentage points, which is what chance gives with 10,000 trials (χ² = {chi}, up to {limit} is chance).",
        "落在目标分布上：相差最多的词也只差 {most} 个百分点，试 10,000 次，偶然误差就有这么大（χ² = {chi}，不超过 {limit} 都算偶然）。",
    ),
    "learn.rule.misses": (
        "It misses the target: “{word}” came out in {got} of cases and should in {want}. Chance does not explain that (χ² = {chi}, up to {limit} is chance).",
        "偏离了目标分布：“{word}”写出了 {got}，本该是 {want}。这不是偶然能解释的（χ² = {chi}，不超过 {limit} 才算偶然）。",
    ),
    "learn.rule.equal": (
        "This broken rule does no harm only because both agree here: move a slider apart and try again.",
        "规则改坏了却没出错，只是因为这里两边的分布一样：把滑块拉开再试。",
    ),
    "learn.rule.legend": ("bar: trials · line: target", "条：试验结果 · 竖线：目标"),
    # 6: at least one
    "learn.step.least": ("At least one token a round", "每轮至少写下一个 token"),
    "learn.step.least.text": (
        "Whatever is guessed, a round ends with a token of the target's own: in place of the first wrong guess, or, if all were right, one more behind "
        "them. So a round never brings less than plain decoding's one token, and at most K + 1.",
        "不管猜得怎样，每轮最后都有一个目标模型自己写的 token：替下第一个猜错的；如果全猜对了，就在后面再多写一个。"
        "所以一轮绝不会少于普通解码的一个 token，最多 K + 1 个。",
    ),
    "learn.step.least.more": (
        "That is about tokens, not time: a round whose guesses all fail took longer than a plain one. The next step does that sum.",
        "这说的是 token 数，不是时间：如果全猜错，这一轮比普通的一轮更慢。值不值，下一步来算。",
    ),
    "learn.least.choose": (
        "How many of three guesses are right before the first wrong one?",
        "三个猜测里，猜错之前对了几个？",
    ),
    "learn.least.right": ("right guesses", "猜对"),
    "learn.least.written": ("written in this round", "这一轮写下"),
    "learn.least.tokens": ("tokens", "token 数"),
    "learn.least.table": ("K = 3: every way a round can end", "K = 3：一轮可能的结果"),
    "learn.least.counted": (
        "In the recorded chat, {rounds} rounds with guesses wrote {tokens} tokens: the shortest {least}, the longest {most}.",
        "录下的那段聊天里，{rounds} 轮有猜测的，共写了 {tokens} 个 token：最少的一轮 {least} 个，最多 {most} 个。",
    ),
    "learn.least.rounds": ("rounds", "轮数"),
    "learn.least.rounds.table": (
        "Rounds of the recorded chat, by the tokens they wrote",
        "录下的聊天里，各轮写了几个 token",
    ),
    # 7: the arithmetic
    "learn.step.sums": ("The arithmetic: when it pays", "算一笔账：什么时候划算"),
    "learn.step.sums.text": (
        "If each guess is accepted with probability α, a round of K guesses brings (1 − α^(K+1)) ÷ (1 − α) tokens on average. If a guess costs c plain "
        "steps, the round costs 1 + K·c of them. Tokens divided by cost is the speed-up (Leviathan et al., arXiv:2211.17192, equation 1 and theorem 3.8).",
        "设每个猜测被接受的概率是 α，那么猜 K 个的一轮，平均写下 (1 − α^(K+1)) ÷ (1 − α) 个 token。设猜一个要花普通一步的 c 倍时间，"
        "那么一轮要花 1 + K·c 步。token 数除以花费，就是提速（Leviathan 等，arXiv:2211.17192，公式 1 和定理 3.8）。",
    ),
    "learn.step.sums.more": (
        "The paper counts in c only the guessing. Here c also holds the extra row that checks the guess, for on a small machine that is not quite free.",
        "论文里的 c 只算起草。这里把核对时多出的那一行也算进 c，因为在小机器上它并不是完全免费。",
    ),
    "learn.sums.alpha": ("Acceptance rate α", "接受率 α"),
    "learn.sums.k": ("Guesses a round K", "每轮猜几个 K"),
    "learn.sums.c": ("Cost of a guess c, in plain steps", "猜一个的花费 c（普通一步 = 1）"),
    "learn.sums.result": (
        "{tokens} tokens a round, for the time of {cost} plain steps: {speedup}×.",
        "每轮 {tokens} 个 token，花 {cost} 步的时间：{speedup}×。",
    ),
    "learn.sums.best": ("The best K here is {k}, with {speedup}×.", "这里最合适的 K 是 {k}，有 {speedup}×。"),
    "learn.sums.never": (
        "Here no K pays: guessing pays only if α is above c.",
        "这里猜几个都不划算：只有 α 大于 c 时，猜才划算。",
    ),
    "learn.sums.table": ("Speed-up by K", "不同 K 的提速"),
    "learn.sums.tokens": ("tokens a round", "每轮 token 数"),
    "learn.sums.speedup": ("speed-up", "提速"),
    "learn.sums.own": ("Use my chat's figures", "用我的对话数据"),
    "learn.sums.own.none": (
        "This chat has no measured figures yet: write a longer reply in Chat first, with a drafter and the baseline on.",
        "这个对话还没有测到数据：请先在“对话”里写一段长一点的回答，打开推测和基准测量。",
    ),
    "learn.sums.point": (
        "Your chat, marked with ◆: α = {alpha}, {k} guesses a round, c = {c}. The formula says {predicted}×, measured were {measured}×.",
        "你的对话，用 ◆ 标出：α = {alpha}，每轮猜 {k} 个，c = {c}。公式算出 {predicted}×，实测 {measured}×。",
    ),
    "learn.sums.point.why": (
        "They need not agree: the formula takes every guess to be equally likely right, and every round to guess as many.",
        "两者不必相同：公式假设每个猜测猜对的机会都一样，每轮猜的个数也一样。",
    ),
    # 8: drafters
    "learn.step.drafters": ("Who drafts", "谁来起草"),
    "learn.step.drafters.text": (
        "Whoever guesses, the answer stays the target's. What differs is how often the guesses are right, on which text, and what they cost.",
        "不管谁来猜，回答都是目标模型的。区别在于：猜中的多少、适合什么文字、要花多少时间。",
    ),
    "learn.drafters.table": ("Three kinds of drafters", "三种草稿模型"),
    "learn.drafters.name": ("drafter", "谁来猜"),
    "learn.drafters.how": ("how it guesses", "怎么猜"),
    "learn.drafters.good": ("good at", "擅长"),
    "learn.drafters.weak": ("weak at", "不擅长"),
    "learn.drafters.recorded": ("in the recordings", "录像里"),
    "learn.drafters.ngram.how": (
        "copies what followed the same words earlier in the text; no model, nearly no cost",
        "照抄前面同样的词后面跟着的内容；不用模型，几乎不花时间",
    ),
    "learn.drafters.ngram.good": (
        "summaries, code edits, answers about a given passage",
        "摘要、改代码、根据给定材料回答",
    ),
    "learn.drafters.ngram.weak": ("text that repeats nothing: poems, free chat", "没有重复的文字：诗、闲聊"),
    "learn.drafters.model.how": (
        "a small model of the same family runs ahead, a pass of its own for each guess",
        "同一家族的小模型先写，每猜一个都要算一遍",
    ),
    "learn.drafters.model.good": ("any text; nothing to train", "什么文字都行；不用训练"),
    "learn.drafters.model.weak": (
        "costs memory and time; there must be a much smaller sibling with the same vocabulary",
        "占内存、花时间；还得有一个词表相同、小得多的“弟弟”",
    ),
    "learn.drafters.head.how": (
        "one small layer reads the target's own hidden states (EAGLE-3, arXiv:2503.01840)",
        "加一个小层，读目标模型自己的隐藏状态来猜（EAGLE-3，arXiv:2503.01840）",
    ),
    "learn.drafters.head.good": (
        "any text, also new text; a fraction of a small model's cost",
        "什么文字都行，新内容也行；花费只是小模型的零头",
    ),
    "learn.drafters.head.weak": (
        "must be trained for this very target; what it was not trained on it guesses badly",
        "必须专门为这个目标模型训练；没训练过的内容猜不准",
    ),
    "learn.drafters.right": ("{accepted} of {tested} right", "{tested} 个里猜中 {accepted} 个"),
    "learn.drafters.absent": ("not in them", "没有用到"),
    "learn.drafters.go": ("Let each write it", "让每一个都写一遍"),
    "learn.drafters.what": ("What to write", "写什么"),
    "learn.drafters.measured": (
        "Each drafter on “{prompt}”: K = 3, temperature 0, {count} tokens at most",
        "每种草稿模型都写“{prompt}”：K = 3，温度 0，最多 {count} 个 token",
    ),
    "learn.drafters.alpha": ("α", "α"),
    "learn.drafters.tau": ("tokens a round τ", "每轮 token 数 τ"),
    "learn.drafters.speed": ("tokens/s", "token/秒"),
    "learn.drafters.gain": ("against none", "与不猜相比"),
    "learn.drafters.result": (
        "The quickest here is “{best}”, at {speedup} times the speed of no guessing.",
        "这里最快的是“{best}”，是不猜时的 {speedup} 倍。",
    ),
    "learn.drafters.result.none": (
        "Here nobody beats plain decoding: guessing costs more than it saves on this text.",
        "这里谁都不如普通解码：写这段文字，猜花的时间比省下的多。",
    ),
    "learn.next": ("When does it pay on this machine? Measure it", "在这台机器上什么时候划算？去测一测"),
    # glossary
    "learn.glossary": ("Glossary", "术语表"),
    "learn.glossary.lead": (
        "Every figure on the page, with its formula, its unit, where the word comes from, and where you see it.",
        "页面上的每个数字：公式、单位、出处，以及在哪里能看到。",
    ),
    "learn.glossary.formula": ("Formula", "公式"),
    "learn.glossary.unit": ("Unit", "单位"),
    "learn.glossary.source": ("Source", "出处"),
    "learn.glossary.seen": ("Seen in", "出现在"),
    "learn.glossary.all": ("In the glossary", "到术语表里看"),
    "learn.glossary.close": ("Close", "关闭"),
}
