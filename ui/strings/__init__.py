"""Every word that a person reads on the page, in English and Chinese. One table, one function."""

from __future__ import annotations

from string import Formatter
from typing import Any, Literal

from ui.strings.learn import LEARN
from ui.strings.models import MODELS
from ui.strings.terms import TERMS
from ui.strings.when import WHEN

Lang = Literal["en", "zh"]
LANGS: tuple[Lang, ...] = ("en", "zh")

TEXT: dict[str, tuple[str, str]] = {
    # header
    "app.name": ("Greenlight", "Greenlight 绿灯"),
    "app.line": (
        "the small model guesses, the big model checks, you read the same answer sooner",
        "小模型先猜，大模型核对；答案一字不变，只是更早读到",
    ),
    "header.language": ("中文", "English"),
    "header.language.help": ("Switch the page to Chinese", "把页面切换成英文"),
    "header.theme": ("Light or dark", "浅色或深色"),
    "header.exact": ("bit-exact", "逐位一致"),
    "header.inexact": ("not proven bit-exact", "未证明逐位一致"),
    "header.facts": (
        "{weights}; {kernel}; {device}, {threads} threads; reads up to {context_len} tokens",
        "{weights}；{kernel}；{device}，{threads} 线程；最多读 {context_len} 个 token",
    ),
    # the views besides the chat
    "tab.label": ("Views", "页面"),
    "tab.chat": ("Chat", "对话"),
    "tab.race": ("Race", "赛跑"),
    "tab.inspect": ("Inspect", "细看"),
    "tab.learn": ("Learn", "学习"),
    "tab.when": ("When to use", "何时用"),
    "watch.glance": ("Watch a recorded race", "先看一场录下来的赛跑"),
    "watch.glance.more": ("Race it yourself", "自己跑一场"),
    "watch.gain": ("Speed-up so far", "目前提速"),
    "watch.lost": (
        "The server no longer has this recording, so it cannot look inside: run or open it again.",
        "服务器上已经没有这段记录，无法细看：请重新运行或打开。",
    ),
    "watch.inside": ("Inside a round", "看一轮的内部"),
    "watch.inside.hint": (
        "Press a word, or go into a lane with Tab and use ← and →.",
        "点一个词；或者用 Tab 走进一条跑道，再按 ← 和 →。",
    ),
    "watch.say.unfinished": (
        "This reply is still being written: look inside when it is done.",
        "这个回答还在写：写完再来细看。",
    ),
    "watch.transport": ("Play", "播放"),
    "watch.restart": ("From the start", "从头开始"),
    "watch.back": ("One round back", "退一轮"),
    "watch.play": ("Play or pause", "播放或暂停"),
    "watch.step": ("One round on", "进一轮"),
    "watch.end": ("To the end", "到结尾"),
    "watch.speeds": ("How fast it plays", "播放速度"),
    "watch.speed.live": ("as it runs", "随时更新"),
    "watch.speed.real": ("real speed", "真实速度"),
    "watch.speed.slow": ("1/4", "1/4"),
    "watch.speed.slower": ("1/16", "1/16"),
    "watch.mode.live": (
        "Live. The lanes take turns on this machine; each clock counts only its own lane's work.",
        "现场。两条跑道轮流使用这台机器，各自的时钟只计自己的用时。",
    ),
    "watch.mode.real": (
        "Replay at real speed: each lane as fast as it was on its own.",
        "按真实速度回放：每条跑道都和单独运行时一样快。",
    ),
    "watch.mode.slow": (
        "Slow motion, a quarter of the real speed. The figures are the real ones.",
        "慢动作，真实速度的四分之一。数字都是真实测得的。",
    ),
    "watch.mode.slower": (
        "Slow motion, a sixteenth of the real speed. The figures are the real ones.",
        "慢动作，真实速度的十六分之一。数字都是真实测得的。",
    ),
    "watch.mode.paused": ("Paused.", "已暂停。"),
    "watch.mode.held": (
        "Paused here; the race itself goes on and is recorded.",
        "画面停在这里；赛跑仍在继续，并会录下来。",
    ),
    "watch.mode.done": ("At the end.", "已到结尾。"),
    "watch.save.trace": ("Save as a file to replay", "存成可回放的文件"),
    "watch.save.page": ("Save as a web page", "存成网页"),
    "watch.say.nothing": ("There is no reply in this chat yet.", "这个对话里还没有回答。"),
    "watch.say.no-race": ("Nothing has been raced yet.", "还没有跑过。"),
    "watch.say.opening": ("Opening the file …", "正在打开文件……"),
    "watch.say.too-large": (
        "This file is too large for a saved reply (20 MB at most).",
        "这个文件太大了，不会是存下来的回答（最多 20 MB）。",
    ),
    "watch.say.unanswered": (
        "The server does not answer: is it still running? Try again.",
        "服务器没有回应：它还在运行吗？请再试一次。",
    ),
    "watch.say.recorded": ("Recorded", "录制于"),
    "race.title": ("Two answers, one machine", "同一台机器，两种写法"),
    "race.lead": (
        "The same prompt, written twice: word by word, and with guesses that are checked in one go.",
        "同一个提示词写两遍：一遍逐词写，一遍先猜后核对。",
    ),
    "race.prompt": ("Prompt", "提示词"),
    "race.k.help": ("Guesses in a round (K)", "每轮猜几个（K）"),
    "race.length": ("Tokens, at most", "最多 token 数"),
    "race.dice": ("same dice", "同一副骰子"),
    "race.dice.help": (
        "Above temperature 0 both lanes draw with the same random numbers, so that both must write the same text.",
        "温度大于 0 时，两条跑道用同一组随机数来抽取，于是必定写出同样的文字。",
    ),
    "race.go": ("Race", "开跑"),
    "race.stop": ("Stop", "停止"),
    "race.rest": (
        "Everything else is as in the chat's settings.",
        "其他设置与对话里的相同。",
    ),
    "race.nobody": (
        "A race needs somebody who guesses: choose a drafter and K above 0 in the chat's settings.",
        "赛跑需要有人来猜：请在对话设置的“由谁来猜”里选一个，并让 K 大于 0。",
    ),
    "source.chat": ("This chat's latest reply", "当前对话的最新回答"),
    "source.race": ("The latest race", "最近一场赛跑"),
    "source.shipped-chat": ("Recorded: a chat", "录像：聊天"),
    "source.shipped-code": ("Recorded: code", "录像：代码"),
    "source.shipped-bad": ("Recorded: where it does not help", "录像：帮不上忙的时候"),
    "source.file": ("Open a saved file", "打开存下的文件"),
    "inspect.title": ("Look inside", "细看每一轮"),
    "inspect.lead": (
        "Every word, every guess, and why it was kept or thrown away.",
        "每个词、每次猜测，以及它为什么被留下或丢掉。",
    ),
    "lane.name.plain": ("Plain, word by word", "普通：逐词写"),
    "lane.name.speculative": ("With guesses", "先猜后核对"),
    "lane.name.reply": ("The reply", "回答"),
    "lane.speed": ("tokens/s", "token/秒"),
    "lane.tokens": ("tokens", "个 token"),
    "lane.clock": ("own time", "自己的用时"),
    "lane.first": ("finished first", "先到终点"),
    "lane.end.length": (
        "Ended at {count} {count:token|tokens}, as many as were allowed.",
        "写到允许的 {count} 个 token 为止。",
    ),
    "lane.end.context": ("The model's memory was full here.", "写到这里，模型的上下文用完了。"),
    "lane.end.error": (
        "Something went wrong: {message} What was written is kept.",
        "出错了：{message} 已写的部分都在。",
    ),
    "act.inspect": ("Look inside", "细看"),
    # what the engine says about a model that lacks something, word for word
    "note.no_template": (
        "This model has no chat template, so it sees the conversation as plain User: and Assistant: lines.",
        "这个模型没有对话模板，所以它看到的对话就是一行行 User: 和 Assistant:。",
    ),
    "note.no_system": (
        "This model's chat template has no system role, so the system prompt is put before the first message.",
        "这个模型的对话模板里没有系统角色，所以系统提示放在第一条消息前面。",
    ),
    "note.nf4": (
        "NF4 rounds this model's own 4-bit weights a second time, which costs so small a model much of its quality: "
        "start without --quant for its best answers.",
        "这个模型的权重本来就是 4 位的，NF4 又舍入了一次；模型这么小，质量会明显下降。想要最好的回答，启动时不要加 --quant。",
    ),
    "note.dequantised": (
        "The numbers of {name} ({origin}) are dequantised: its weights take {here} GiB of memory instead of {there}.",
        "{name}（{origin}）的数值已经展开：权重占 {here} GiB 内存，文件里是 {there} GiB。",
    ),
    "note.reencoded": (
        "{drafter} and {target} have different tokenisers: what the drafter writes is read again in the target's tokens, which "
        "changes no text and costs some of the speed.",
        "{drafter} 和 {target} 的分词器不同：草稿模型写出的文字要按目标模型的 token 重新切分，文字不变，速度会打些折扣。",
    ),
    # loading
    "load.start": ("Starting", "正在启动"),
    "load.compile": ("Compiling the kernels", "正在编译计算内核"),
    "load.fetch": ("Fetching the model", "正在下载模型"),
    "load.unpack": ("Unpacking the model", "正在解包模型"),
    "load.convert": ("Preparing the weights", "正在转换权重"),
    "load.load": ("Loading the model", "正在加载模型"),
    "load.warm_up": ("Warming up", "正在预热"),
    "load.ready": ("Ready", "准备好了"),
    "load.failed": ("The model could not be loaded.", "模型没能加载。"),
    "load.note": (
        "You can already write: your message is sent as soon as the model is ready.",
        "现在就可以写：模型一准备好，消息就会发出去。",
    ),
    "load.pending": (
        "Your message is sent as soon as the model is ready.",
        "模型一准备好，你的消息就会发出去。",
    ),
    # transcript
    "log.label": ("Conversation", "对话内容"),
    "log.you": ("You", "你"),
    "log.model": ("Model", "模型"),
    "log.empty": ("Ask something, or try one of these.", "问点什么，或者先试试下面的例子。"),
    "log.english": (
        "The built-in model is small and speaks English.",
        "内置模型很小，只擅长英文，所以例子用英文写。",
    ),
    "log.waiting": ("Waiting for the model", "等待模型空闲"),
    "log.ahead": ("{count} ahead of you", "前面还有 {count} 个请求"),
    "log.reading": ("Reading your message", "正在读你的消息"),
    # how a reply ended
    "end.length": (
        "Cut off at {count} {count:token|tokens}. Raise “Longest reply” to let it go on.",
        "写到 {count} 个 token 就截断了。想让它写完，就调大“回答上限”。",
    ),
    "end.context": (
        "The model's memory is full. Start a new chat to go on.",
        "模型的上下文已经用完。新建一个对话就可以继续。",
    ),
    "end.cancelled": ("Stopped. What was written is kept.", "已停止，写好的部分都保留着。"),
    "end.cancelled.empty": ("Stopped before the first word.", "还没开始写就停下了。"),
    "end.error": (
        "Something went wrong: {message} What was written is kept; press Again under it to try once more.",
        "出错了：{message} 已写的部分都在，可以点下面的“重写”。",
    ),
    "end.drafter_context": (
        "The conversation outgrew the drafter's memory: from there on it was written without guesses.",
        "对话长到草稿模型的上下文装不下了，后面的部分没有再猜。",
    ),
    "end.figures": (
        "{tokens} {tokens:token|tokens} · {green} guessed right · {red} thrown away · seed {seed}",
        "{tokens} 个 token · 猜中 {green} 个 · 扔掉 {red} 个 · 种子 {seed}",
    ),
    "end.plain": (
        "{tokens} {tokens:token|tokens}, plain decoding · seed {seed}",
        "{tokens} 个 token，普通解码 · 种子 {seed}",
    ),
    # screen reader
    "say.started": ("The reply has started.", "开始回答了。"),
    "say.finished": ("The reply is finished: {tokens} {tokens:token|tokens}.", "回答结束，共 {tokens} 个 token。"),
    # under a message
    "act.edit": ("Edit", "编辑"),
    "act.copy": ("Copy", "复制"),
    "act.copied": ("Copied", "已复制"),
    "act.again": ("Again", "重写"),
    "act.reseed": ("Other seed", "换个种子"),
    "edit.label": ("Edit your message", "编辑这条消息"),
    "edit.send": ("Send", "发送"),
    "edit.cancel": ("Cancel", "取消"),
    "edit.note": (
        "What came after it goes; Undo brings it back.",
        "后面的内容会被替换掉，可以用“撤销”找回来。",
    ),
    "foot.speed": ("{value} tokens/s", "{value} token/秒"),
    "foot.plain": ("plain {value} tokens/s", "普通解码 {value} token/秒"),
    "foot.speedup": ("{value} plain speed", "普通解码的 {value}"),
    "foot.alpha": ("α {value}", "α {value}"),
    "foot.tau": ("τ {value}", "τ {value}"),
    "foot.ttft": ("first token {value}", "首个 token {value}"),
    # context meter
    "meter.used": (
        "{used} of {context} tokens of context used, {left} left",
        "上下文已用 {used} / {context} 个 token，还剩 {left} 个",
    ),
    "meter.asking": (
        "with this message {used} of {context} tokens of context, {left} left",
        "加上这条消息，上下文 {used} / {context} 个 token，还剩 {left} 个",
    ),
    "meter.too_long": (
        "too long: {count} tokens with the conversation so far; the model reads fewer than {context}",
        "太长：连同前面的对话共 {count} 个 token，模型最多读 {context} 个（含回答）",
    ),
    # special tokens
    "special.end_of_turn": ("end of turn", "回合结束"),
    "special.start_of_turn": ("start of turn", "回合开始"),
    "special.end_of_text": ("end of text", "文本结束"),
    # legend
    "legend.title": ("What the colours mean", "颜色的意思"),
    "legend.draft": ("guessed right, free", "猜中了，白赚的"),
    "legend.rejected": ("guessed wrong, thrown away", "猜错了，扔掉"),
    "legend.discarded": ("never checked, behind a wrong guess", "前面猜错了，没轮到检查"),
    "legend.recovered": ("the model's own word instead", "换成大模型自己的词"),
    "legend.bonus": ("one extra, all guesses were right", "全猜中时多送一个"),
    "legend.plain": ("written without guessing", "没有猜，直接写的"),
    "legend.round": (
        "Point at a word or tap it to see what both models made of it; with the keyboard, ← and → in the conversation.",
        "把指针移到词上，或者点一下，就能看到两个模型怎么看它；键盘：在对话区按 ← →。",
    ),
    "legend.colours": ("Colour the words", "给词上色"),
    "legend.hide": ("Hide wrong guesses", "隐藏猜错的词"),
    "legend.shade": ("Shade unlikely words", "越少见的词底色越深"),
    # live panel
    "panel.unit": ("tokens/s", "token/秒"),
    "panel.spec": ("Speculative", "推测解码"),
    "panel.plain": ("Plain", "普通解码"),
    "panel.speedup": ("Speed-up", "加速比"),
    "panel.slower": ("slower than plain here", "这里比普通解码还慢"),
    "panel.same": ("about the same as plain", "和普通解码差不多"),
    "panel.unclear": ("no clear difference: the samples scatter", "差别不明显：测到的数太分散"),
    "panel.faster": ("faster than plain", "比普通解码快"),
    "panel.expected": ("expected", "预计加速比"),
    "panel.expected.help": (
        "what the automatic choice of K expected, from what rounds cost here and how many guesses were right",
        "自动选 K 时的预计：按这里每轮的耗时和猜中的比例算",
    ),
    "panel.rest": ("Guessing is off: it does not pay here.", "暂时不猜：在这里不划算。"),
    "panel.rest.would": (
        "Guessing is off: it would be {speedup} here.",
        "暂时不猜：在这里猜的话只有 {speedup}。",
    ),
    "panel.rest.no_offer": (
        "No guesses: nothing here repeats what came before.",
        "暂时没有可猜的：这里没有重复前面的内容。",
    ),
    "panel.rest.short": ("guessing off", "暂时不猜"),
    "panel.doubtful": (
        "more than guessing can give: the machine was busy",
        "高过了推测能带来的上限：测的时候机器正忙",
    ),
    "panel.idle": ("Nothing measured yet.", "还没有测到数据。"),
    "panel.measuring": ("Plain speed: measuring, {n} of {need}", "普通解码的速度：正在测，{n} / {need}"),
    "panel.measured": (
        "Plain speed: measured in this reply, n = {n}, spread ±{spread} %",
        "普通解码的速度：在这段回答里实测，n = {n}，波动 ±{spread}%",
    ),
    "panel.measured.conversation": (
        "Both speeds: measured in this conversation, n = {n}, spread ±{spread} %",
        "两个速度：在这个对话里实测，n = {n}，波动 ±{spread}%",
    ),
    "panel.unprobed": (
        "Plain speed: not measured, because measuring is switched off.",
        "普通解码的速度：没有测，因为测量关掉了。",
    ),
    "panel.now": ("now", "当前"),
    "panel.overall": ("overall", "整体"),
    "panel.alpha": ("acceptance α", "接受率 α"),
    "panel.alpha.help": ("accepted / tested", "接受数 ÷ 检查数"),
    "panel.tau": ("tokens a round τ", "每轮 token 数 τ"),
    "panel.tau.help": ("1 is plain decoding; K + 1 at best", "普通解码是 1，最多是 K + 1"),
    "panel.k": ("K, latest round", "K（最近一轮）"),
    "panel.k.help": ("guesses in the latest round", "最近一轮猜了几个"),
    "panel.mean_k": ("K, mean", "K（平均）"),
    "panel.mean_k.help": (
        "guesses a round in this reply, rounds without any included",
        "这段回答里平均每轮猜几个，没猜的轮也算",
    ),
    "panel.by": ("α by drafter:", "各自的 α："),
    "panel.drafted": ("drafted", "猜了"),
    "panel.accepted": ("accepted", "接受"),
    "panel.rejected": ("rejected", "拒绝"),
    "panel.discarded": ("not checked", "未检查"),
    "panel.ttft": ("first token after", "首个 token 用时"),
    "panel.tokens": ("tokens", "token 数"),
    "panel.line": ("{spec} tok/s · plain {plain} · {speedup}", "{spec} token/秒 · 普通 {plain} · {speedup}"),
    "panel.open": ("Show all figures", "展开全部数据"),
    # composer
    "box.label": ("Your message", "你的消息"),
    "box.placeholder": (
        "Write a message. Enter sends, Shift+Enter breaks the line.",
        "写点什么。回车发送，Shift+回车换行。",
    ),
    "button.send": ("Send", "发送"),
    "button.stop": ("Stop", "停止"),
    "button.undo": ("Undo", "撤销"),
    "button.redo": ("Redo", "恢复"),
    # settings
    "settings.title": ("Settings", "设置"),
    "k.label": ("Guesses a round (K)", "每轮猜几个（K）"),
    "k.help": (
        "Automatic makes as many as pay by what is measured here, or none; a number stays as it is set.",
        "自动：按这里的实测，每一轮猜多少个划算就猜多少个，不划算就不猜。选了数字就一直用这个数。",
    ),
    "k.auto": ("automatic (by what pays)", "自动（划算才猜）"),
    "k.0": ("0 · plain decoding", "0 · 普通解码"),
    "drafter.label": ("Drafter", "由谁来猜"),
    "drafter.help": (
        "Who makes the guesses. Whoever it is, the model checks them and the answer stays its own.",
        "谁来猜都行：猜的都由大模型核对，答案始终是大模型自己的。",
    ),
    "drafter.auto": ("automatic", "自动"),
    "drafter.auto.help": (
        "The best that is loaded. Keep it, unless you want to compare.",
        "用已加载的里面最好的。不做对比，就不用改。",
    ),
    "drafter.none": ("off", "关闭"),
    "drafter.none.help": ("Plain decoding: one token at a time, no guesses.", "普通解码：一次写一个 token，不猜。"),
    "drafter.ngram": ("n-gram", "n-gram"),
    "drafter.ngram.help": (
        "Finds the last words earlier in the text and copies what followed. Almost free; good for code, lists, "
        "quotations and summaries.",
        "在前文里找到同样的几个词，照抄后面的内容。几乎不花时间，适合代码、列表、引用和总结。",
    ),
    "drafter.head": ("trained head", "训练好的草稿头"),
    "drafter.head.help": (
        "A small network that learnt from this model's own replies and reads its inner states. Good where nothing repeats.",
        "一个小网络，学过这个模型自己写的回答，根据它的内部状态来猜。适合没有重复的内容。",
    ),
    "drafter.both": ("n-gram and head", "n-gram 加草稿头"),
    "drafter.both.help": (
        "Each round goes to the one that has paid better here. Good when a reply mixes quoting and new text.",
        "每一轮交给在这里更划算的那一个。回答里既有照抄又有新内容时最合适。",
    ),
    "drafter.draft_model": ("another model", "另一个模型"),
    "drafter.draft_model.help": (
        "A smaller model of the same family. Good when it is at least ten times smaller than the one it guesses for.",
        "同一家族里更小的模型。至少小十倍才划算。",
    ),
    "drafter.missing.head": (
        "No trained head: this model has none yet. Train one, then start with --drafter and its folder.",
        "没有草稿头：这个模型还没有训练过。训练一个，再用 --drafter 加上它的文件夹启动。",
    ),
    "drafter.missing.asked": (
        "No trained head: this start asked for --drafter {asked}. Leave the option out to load the model's own head.",
        "没有草稿头：这次启动指定了 --drafter {asked}。去掉这个选项，就会加载这个模型自带的草稿头。",
    ),
    "drafter.missing.model": (
        "No other model: to have one, start with --drafter and the name or folder of a smaller model of the same family.",
        "没有另一个模型：想用的话，启动时加上 --drafter 和同一家族里更小模型的名字或文件夹。",
    ),
    # one round, where a person points at it
    "round.k": ("Round {index}: K = {k}", "第 {index} 轮：K = {k}"),
    "round.fixed": ("as set", "手动设定"),
    "round.auto": ("automatic", "自动"),
    "round.off": ("off, because guessing does not pay now", "暂时不猜，因为现在不划算"),
    "round.explore": ("a try, to see whether things have changed", "试一次，看看情况变了没有"),
    "round.no_offer": ("nothing to guess from", "没有可猜的"),
    "round.probe": ("no guesses, to measure plain speed", "不猜，用来测普通解码的速度"),
    "round.budget": ("cut, the longest reply is near", "减少了，快到回答上限"),
    "round.context": ("cut, the model's memory is nearly full", "减少了，大模型的上下文快满了"),
    "round.drafter_context": ("cut, the drafter's memory is nearly full", "减少了，草稿模型的上下文快满了"),
    "round.by": ("guessed by {who}", "由{who}来猜"),
    "round.right": ("{accepted} of {drafted} right", "猜 {drafted} 个，中 {accepted} 个"),
    "round.expected": ("expected {speedup}", "预计 {speedup}"),
    "round.would": ("guessing would give {speedup}", "猜的话预计 {speedup}"),
    "rule.label": ("Acceptance rule", "接受规则"),
    "rule.help": (
        "Both keep the model's own distribution unchanged.",
        "两种规则都不会改变大模型本来的概率分布。",
    ),
    "rule.rejection": ("rejection sampling", "拒绝采样"),
    "rule.shared_noise": ("shared noise", "共享噪声"),
    "temperature.label": ("Temperature", "温度"),
    "temperature.help": (
        "0 always takes the likeliest token; higher is more varied and harder to guess.",
        "0 总是选最可能的词；越高越多变，也越难猜中。",
    ),
    "top_p.label": ("Top-p", "Top-p"),
    "top_p.help": (
        "Draw only from the likeliest tokens that together reach this probability. 1 is off.",
        "只在累计概率达到这个数的最可能的词里抽。1 表示不限制。",
    ),
    "max_new_tokens.label": ("Longest reply", "回答上限"),
    "max_new_tokens.help": ("In tokens.", "以 token 计。"),
    "seed.label": ("Seed", "随机种子"),
    "seed.help": (
        "Blank: a new one each time, shown under the reply.",
        "留空则每次随机，用到的种子会写在回答下面。",
    ),
    "system.label": ("System prompt", "系统提示"),
    "system.help": ("Instructions that come before the conversation.", "放在对话最前面的要求。"),
    "probe_every.label": ("Measure plain speed every … rounds", "每隔几轮测一次普通解码"),
    "probe_every.help": (
        "One round in so many runs without guesses, for a fair comparison. 0 is off.",
        "每隔这么多轮，有一轮不猜，用来公平对比。0 表示不测。",
    ),
    "record.label": ("Record the likeliest tokens", "记录最可能的 token"),
    "record.help": (
        "The five likeliest of both models at each step, for “Look inside”. Takes about a twentieth of the time, which no figure counts.",
        "每一步两个模型各记下最可能的五个，供“细看”用。大约多花二十分之一的时间，各项数字都不计入。",
    ),
    # notices
    "notice.empty": ("Write something first, then press Enter.", "先写点什么，再按回车。"),
    "notice.busy": (
        "A reply is still being written here. Press Stop first, or wait for it to end.",
        "这个对话里的回答还没写完。先点“停止”，或者等它写完。",
    ),
    "notice.unsent": ("Not sent. Your message is kept.", "没有发出。你写的消息还在。"),
    "notice.nothing": ("That message is no longer there.", "那条消息已经不在了。"),
    "notice.paste": (
        "Too long to paste: the box takes at most 100,000 characters. What was in it is unchanged.",
        "粘贴的内容太长了：输入框最多放 100,000 个字符。框里原来的内容没有变。",
    ),
    "notice.context": (
        "Too long: {prompt} tokens, and the model reads at most {context}. "
        "Shorten the message or start a new chat. Your message is kept.",
        "太长了：共 {prompt} 个 token，模型最多读 {context} 个。缩短消息，或者新建一个对话。你写的消息还在。",
    ),
    "notice.full": (
        "Too many people are waiting right now. Try again in a moment. Your message is kept.",
        "现在排队的人太多，过一会儿再试。你写的消息还在。",
    ),
    "notice.failed": ("{message} Your message is kept.", "{message} 你写的消息还在。"),
    "notice.bug": (
        "Something went wrong inside Greenlight; its terminal has the details. What was written is kept: try again.",
        "Greenlight 内部出错了，详情在终端里。写好的内容都还在，请再试一次。",
    ),
    "notice.unreadable": (
        "This chat was saved in a form that this version cannot read. It is kept in your browser as it is.",
        "这个对话的保存格式当前版本读不了。它仍原样保存在你的浏览器里。",
    ),
    # examples
    "examples.good": ("Guessing pays off", "猜得准，快得多"),
    "examples.bad": ("Guessing hardly helps", "很难猜，快不了"),
    # charts
    "charts.title": ("Charts of the latest reply", "最新一段回答的图表"),
    "charts.failed": (
        "The charts cannot be drawn, because Plotly's script did not load. The tables hold every number; "
        "close and open this section to try again.",
        "图表画不出来，因为 Plotly 的脚本没有加载成功。表格里的数字是完整的；收起再展开这一栏可以重试。",
    ),
    "charts.speed": ("Speed over the reply", "写得多快"),
    "charts.acceptance": ("Guesses that were right", "猜中了多少"),
    "charts.lengths": ("Tokens a round", "每轮写几个 token"),
    "charts.time": ("Where the time goes", "时间花在哪里"),
    "charts.this": ("this reply", "这段回答"),
    "charts.plain": ("plain, measured", "普通解码（实测）"),
    "charts.plain.measured": ("plain, n = {n}", "普通解码，n = {n}"),
    "charts.whole": ("whole reply", "整段回答"),
    "charts.all": ("all", "合计"),
    "charts.share": ("share", "占比"),
    "charts.part": ("part", "部分"),
    "charts.seconds": ("time", "用时"),
    "charts.draft": ("guessing", "猜"),
    "charts.verify": ("big model", "大模型"),
    "charts.sample": ("sampling", "采样"),
    "charts.other": ("rest", "其他"),
    "charts.axis.tokens": ("tokens written", "已写的 token 数"),
    "charts.axis.speed": ("tokens/s", "token/秒"),
    "charts.axis.place": ("guess in its round", "一轮里的第几个猜测"),
    "charts.axis.right": ("right / checked", "猜中 ÷ 检查"),
    "charts.axis.length": ("tokens in the round", "一轮写的 token 数"),
    "charts.axis.rounds": ("rounds", "轮数"),
    "charts.speed.both": (
        "{spec} tokens/s, where plain decoding writes {plain}: {speedup}.",
        "每秒 {spec} 个 token，普通解码是 {plain} 个：{speedup}。",
    ),
    "charts.speed.alone": (
        "{spec} tokens/s. Plain decoding has not been measured in this reply.",
        "每秒 {spec} 个 token。这段回答里还没有测到普通解码的速度。",
    ),
    "charts.speed.plain": ("{plain} tokens/s, all of it plain decoding.", "每秒 {plain} 个 token，全部是普通解码。"),
    "charts.speed.table": (
        "Speed by stretch of the reply. The curve is the mean of the latest {window:g} s of computing.",
        "回答各段的速度。曲线是最近 {window:g} 秒计算时间里的平均值。",
    ),
    "charts.acceptance.none": ("No guess has been checked in this reply.", "这段回答里还没有检查过猜测。"),
    "charts.acceptance.first": (
        "{accepted} of {tested} {tested:first guess was|first guesses were} right.",
        "每轮的第一个猜测：检查了 {tested} 个，猜中 {accepted} 个。",
    ),
    "charts.acceptance.table": (
        "By place in the round. Only guesses that were checked count.",
        "按在一轮里的位置。只算检查过的猜测。",
    ),
    "charts.lengths.none": ("There has been no speculative round in this reply.", "这段回答里还没有推测轮。"),
    "charts.lengths.mean": (
        "A speculative round wrote {tau} tokens on average; a plain one writes 1.",
        "推测轮平均写 {tau} 个 token；普通解码每轮写 1 个。",
    ),
    "charts.lengths.table": ("Speculative rounds by the tokens that they wrote.", "按写出的 token 数统计推测轮。"),
    "charts.time.split": (
        "Guessing took {draft} of the computing time, the big model {verify}.",
        "计算时间里，猜占 {draft}，大模型占 {verify}。",
    ),
    "charts.time.table": (
        "Computing after the first token, plain measurements included.",
        "首个 token 之后的计算时间，包括测普通解码的部分。",
    ),
    "charts.race": ("Charts", "图表"),
    "charts.timeline": ("Round by round", "一轮一轮看"),
    "charts.cumulative": ("Tokens over time", "随时间写出的 token"),
    "charts.accepted": ("Right in a row", "连续猜中几个"),
    "charts.scatter": ("How sure both models were", "两个模型各有多大把握"),
    "charts.lane.plain": ("plain", "普通"),
    "charts.lane.speculative": ("with guesses", "带猜测"),
    "charts.lane.reply": ("reply", "回答"),
    "charts.axis.own": ("computing time, s", "计算时间（秒）"),
    "charts.axis.passes": ("share of passes", "占全部前向的比例"),
    "charts.axis.row": ("guesses right in a row", "连续猜中的个数"),
    "charts.axis.small": ("small model's probability", "小模型给的概率"),
    "charts.axis.big": ("big model's", "大模型给的概率"),
    "charts.even": ("equally sure", "把握相同"),
    "charts.round": ("whole round", "整轮"),
    "charts.end": ("in all", "总共"),
    "charts.mean": ("mean", "平均"),
    "charts.timeline.both": (
        "The latest stretch that both have, {start} to {end} s: guessing wrote {spec} {spec:token|tokens} in {spec_n} "
        "{spec_n:round|rounds}, plain decoding {plain} in {plain_n}. Where there is room, a bar tells what its round wrote.",
        "两边都有的最近一段，{start} 到 {end} 秒：带猜测的一边 {spec_n} 轮写了 {spec} 个 token，普通解码 {plain_n} 轮写了 {plain} 个。"
        "放得下时，条里的数字是那一轮写的 token 数。",
    ),
    "charts.timeline.one": (
        "The latest stretch, {start} to {end} s: {n} {n:round|rounds} wrote {tokens} {tokens:token|tokens}. "
        "Where there is room, a bar tells what its round wrote.",
        "最近一段，{start} 到 {end} 秒：{n} 轮写了 {tokens} 个 token。放得下时，条里的数字是那一轮写的 token 数。",
    ),
    "charts.timeline.table": ("Mean of a whole round in this stretch.", "这一段里每一整轮的平均值。"),
    "charts.cumulative.both": (
        "After {end} s of computing, guessing had written {spec} {spec:token|tokens} and plain decoding {plain}: "
        "the distance between the lines.",
        "各算了 {end} 秒时，带猜测的一边写了 {spec} 个 token，普通解码写了 {plain} 个：两条线之间的距离就是差距。",
    ),
    "charts.cumulative.one": (
        "{tokens} {tokens:token|tokens} in {end} s of computing.",
        "算了 {end} 秒，写了 {tokens} 个 token。",
    ),
    "charts.cumulative.table": (
        "Tokens written by the computing time of each, reading the prompt included.",
        "按各自的计算时间（含读提示词）统计已写的 token。",
    ),
    "charts.passes.mean": (
        "{n} {n:pass|passes} of the big model wrote {tokens} {tokens:token|tokens}, {mean} each; plain decoding writes 1 a pass.",
        "大模型前向 {n} 次，写了 {tokens} 个 token，平均每次 {mean} 个；普通解码每次写 1 个。",
    ),
    "charts.passes.table": (
        "Passes of the big model by the tokens that they wrote.",
        "按写出的 token 数统计大模型的前向。",
    ),
    "charts.accepted.mean": (
        "{mean} guesses in a row were right on average; {whole} of {n} {n:round|rounds} had every guess right.",
        "平均连续猜中 {mean} 个；{n} 轮里有 {whole} 轮全部猜中。",
    ),
    "charts.accepted.table": (
        "Rounds with guesses by how many were right before the first wrong one.",
        "按第一个猜错之前猜中的个数统计有猜测的轮。",
    ),
    "charts.scatter.none": (
        "No guess by a model has been checked here; copies of earlier text have no probability.",
        "这里还没有检查过模型的猜测；从前文抄来的猜测没有概率。",
    ),
    "charts.scatter.undetailed": (
        "The probabilities of the guesses were not recorded.",
        "没有记录这些猜测的概率。",
    ),
    "charts.scatter.own": (
        "The models' own probabilities, since the settings leave only one token each time. The big model gave accepted guesses "
        "{accepted} on average, rejected ones {rejected}. {drawn} of {n} are drawn.",
        "两个模型本来的概率，因为按设置每次只留一个 token。大模型给接受的猜测平均 {accepted}，给拒绝的 {rejected}。共 {n} 个，画出 {drawn} 个。",
    ),
    "charts.scatter.compared": (
        "Probabilities after temperature and filters, as they were compared. The big model gave accepted guesses {accepted} on "
        "average, rejected ones {rejected}. {drawn} of {n} are drawn.",
        "经过温度和筛选之后、核对时比较的概率。大模型给接受的猜测平均 {accepted}，给拒绝的 {rejected}。共 {n} 个，画出 {drawn} 个。",
    ),
    "charts.scatter.table": (
        "Guesses by the small model's probability.",
        "按小模型给的概率统计猜测。",
    ),
    # settings: groups, presets, corrections
    "group.decoding": ("Decoding", "解码"),
    "group.sampling": ("Sampling", "采样"),
    "group.limits": ("Length and stopping", "长度与停止"),
    "group.system": ("System prompt", "系统提示"),
    "presets.label": ("Presets", "预设"),
    "preset.precise": ("Precise", "精确"),
    "preset.precise.help": ("The likeliest word each time.", "每次都选最可能的词。"),
    "preset.balanced": ("Balanced", "均衡"),
    "preset.balanced.help": ("Some variety, few slips.", "有些变化，很少跑偏。"),
    "preset.creative": ("Creative", "发散"),
    "preset.creative.help": ("Varied; harder to guess.", "变化多，更难猜中。"),
    "preset.show_off": ("Show-off", "秀速度"),
    "preset.show_off.help": ("Long and greedy: guessing at its best.", "又长又确定，最能看出推测的快。"),
    "settings.reset": ("Reset settings", "恢复默认设置"),
    "settings.kept": ("Settings are remembered in this browser only.", "设置只保存在这个浏览器里。"),
    "top_k.label": ("Top-k", "Top-k"),
    "top_k.help": (
        "Draw only from this many of the likeliest tokens. 0 is off.",
        "只在最可能的这么多个词里抽。0 表示不限制。",
    ),
    "min_p.label": ("Min-p", "Min-p"),
    "min_p.help": (
        "Leave out tokens below this share of the likeliest one's probability. 0 is off.",
        "概率不到最可能的词的这个比例，就不抽。0 表示不限制。",
    ),
    "repetition_penalty.label": ("Repetition penalty", "重复惩罚"),
    "repetition_penalty.help": (
        "Above 1: less of what prompt and reply already hold. 1 is off.",
        "大于 1：提示和回答里出现过的词少用。1 表示关闭。",
    ),
    "frequency_penalty.label": ("Frequency penalty", "频率惩罚"),
    "frequency_penalty.help": (
        "Above 0: the more often the reply has used a token, the less likely. 0 is off.",
        "大于 0：回答里用得越多的词，越不容易再用。0 表示关闭。",
    ),
    "presence_penalty.label": ("Presence penalty", "出现惩罚"),
    "presence_penalty.help": (
        "Above 0: a token that the reply has used once is less likely. 0 is off.",
        "大于 0：回答里用过的词不容易再用。0 表示关闭。",
    ),
    "stop.label": ("Stop at", "遇到就停"),
    "stop.help": (
        "One text a line; the reply ends before the first that comes up. \\n stands for a line break.",
        "每行一段文字，回答遇到其中任何一段就停在它前面。\\n 表示换行。",
    ),
    "seed.dice": ("Draw a seed", "随机抽一个种子"),
    "seed.lock": ("Keep the last reply's seed", "固定用上一次回答的种子"),
    "correct.range": (
        "“{label}” goes from {low} to {high}: {used} is used instead of {given}.",
        "“{label}”的范围是 {low} 到 {high}：{given} 改为 {used}。",
    ),
    "correct.whole": (
        "“{label}” takes whole numbers from {low} to {high}: {used} is used instead of {given}.",
        "“{label}”要填 {low} 到 {high} 的整数：{given} 改为 {used}。",
    ),
    "correct.number": (
        "“{label}” needs a number from {low} to {high}: {used} is used.",
        "“{label}”要填 {low} 到 {high} 之间的数：先用 {used}。",
    ),
    "correct.choice": (
        "“{label}”: {given} is not available here, {used} is used instead.",
        "“{label}”：这里没有{given}，改用{used}。",
    ),
    "correct.seed": (
        "“{label}” is blank or a whole number from 0 up: a new one is drawn instead of {given}.",
        "“{label}”留空，或者填不小于 0 的整数：{given} 不能用，改为随机。",
    ),
    "correct.stop": (
        "“{label}” takes up to 16 lines of up to 200 characters: what is beyond that was left out.",
        "“{label}”最多 16 行，每行最多 200 个字符：多出来的已去掉。",
    ),
    "correct.unreadable": (
        "“{label}” could not be read: its usual value is used.",
        "“{label}”读不出来：改用默认值。",
    ),
    # chats
    "chats.title": ("Chats", "对话"),
    "chats.new": ("New chat", "新对话"),
    "chats.close": ("Close the list of chats", "收起对话列表"),
    "chats.none": ("Chats appear here once you have written something.", "写过消息的对话会列在这里。"),
    "chats.where": ("Kept in this browser only.", "只保存在这个浏览器里。"),
    "chats.forbidden": (
        "Kept until this page is closed: the browser forbids storage.",
        "浏览器不允许存储，关掉页面后对话就没有了。",
    ),
    "chats.full": (
        "The latest changes could not be kept: the browser's storage is full. Export or delete some chats.",
        "浏览器的存储空间满了，最新的内容没存上。可以先导出或删掉一些对话。",
    ),
    "chats.writing": ("writing", "正在写"),
    "chats.more": ("More about:", "更多操作："),
    "chats.name": ("Name of the chat", "对话名称"),
    "chats.rename": ("Rename", "改名"),
    "chats.markdown": ("Save as Markdown", "存成 Markdown"),
    "chats.json": ("Save as JSON", "存成 JSON"),
    "chats.json.help": ("With every token and every figure", "包含每个 token 和全部数据"),
    "chats.delete": ("Delete", "删除"),
    "chats.sure": ("Delete it?", "删掉吗？"),
    "chats.yes": ("Delete", "删除"),
    "chats.keep": ("Keep", "保留"),
    "chats.unanswered": (
        "The file could not be made: the server does not answer. Try again in a moment.",
        "没能生成文件：服务器没有回应，过一会儿再试。",
    ),
    "chats.gone": ("Chat deleted.", "对话已删除。"),
    "chats.undo": ("Undo", "撤销"),
    "export.tokens": (
        "{tokens} {tokens:token|tokens}, {accepted} of {drafted} guesses right",
        "{tokens} 个 token，猜了 {drafted} 个，中了 {accepted} 个",
    ),
    "export.no_drafter": ("plain decoding", "普通解码"),
    "export.temperature": ("temperature {value}", "温度 {value}"),
    "export.auto": ("auto", "自动"),
    "export.seed": ("seed {value}", "种子 {value}"),
    "export.length": ("cut off at the length limit", "到达长度上限，截断"),
    "export.context": ("the model's context was full", "模型的上下文用完"),
    "export.cancelled": ("stopped", "中途停止"),
    "export.error": ("ended by an error: {message}", "出错结束：{message}"),
    # card: a token up close
    "card.label": ("About this token", "这个 token 的详情"),
    "card.kind.draft": ("accepted draft", "猜中的草稿"),
    "card.kind.rejected": ("rejected draft", "猜错的草稿"),
    "card.kind.discarded": ("draft that was never checked", "没轮到检查的草稿"),
    "card.kind.recovered": ("the model's own token, in place of a wrong guess", "猜错之后，大模型换上的 token"),
    "card.kind.bonus": ("one extra: all guesses were right", "全猜中，多送的一个"),
    "card.kind.plain": ("written without guessing", "没有猜，直接写的"),
    "card.kind.first": ("first token of the reply", "回答的第一个 token"),
    "card.gave": (
        "The drafter gave it {draft}, the model {target}.",
        "草稿模型给它的概率是 {draft}，大模型给它 {target}。",
    ),
    "card.gave.draft": ("The drafter gave it {draft}.", "草稿模型给它的概率是 {draft}。"),
    "card.gave.copy": (
        "It was copied from earlier in the text, which counts as certain ({draft}); the model gave it {target}.",
        "它是照抄前文的，算作十足把握（{draft}）；大模型给它 {target}。",
    ),
    "card.gave.copied": (
        "It was copied from earlier in the text, which counts as certain ({draft}).",
        "它是照抄前文的，算作十足把握（{draft}）。",
    ),
    "card.copy": ("It was copied from earlier in the text.", "它是照抄前文的。"),
    "card.accept": ("So it is kept with probability {accept}.", "所以它有 {accept} 的概率留下。"),
    "card.sure": (
        "The model found it no less likely than the drafter did, so it stays, whatever number is drawn.",
        "大模型给的概率不比草稿模型低，所以不管抽到什么数，它都留下。",
    ),
    "card.drawn.kept": ("The number drawn was {drawn}, below that: it stays.", "抽到的数是 {drawn}，比它小：留下。"),
    "card.drawn.lost": (
        "The number drawn was {drawn}, not below that: it goes.",
        "抽到的数是 {drawn}，不比它小：扔掉。",
    ),
    "card.greedy.kept": (
        "At temperature 0 a guess stands if it is the model's own likeliest token, and it was.",
        "温度为 0 时，猜测正好是大模型自己最可能写的 token 才留下；它正是。",
    ),
    "card.greedy.lost": (
        "At temperature 0 a guess stands only if it is the model's own likeliest token, and it was not.",
        "温度为 0 时，猜测正好是大模型自己最可能写的 token 才留下；它不是。",
    ),
    "card.noise.kept": (
        "Under shared noise a guess stands if the model's own draw is that very token, and it was: “{instead}”.",
        "共享噪声规则下，大模型自己抽到的正好是它才留下；抽到的正是“{instead}”。",
    ),
    "card.noise.lost": (
        "Under shared noise a guess stands only if the model's own draw is that very token, but the model drew “{instead}”.",
        "共享噪声规则下，大模型自己抽到的正好是它才留下；但大模型抽到的是“{instead}”。",
    ),
    "card.unchecked": (
        "It was guessed behind “{lost}”, which was rejected. So it was never checked, and counts neither as right nor as wrong.",
        "它是接在“{lost}”后面猜的，而“{lost}”被拒绝了。所以它没有被检查，既不算对也不算错。",
    ),
    "card.unchecked.end": (
        "The reply ended before its turn came. So it was never checked, and counts neither as right nor as wrong.",
        "还没轮到它，回答就结束了。所以它没有被检查，既不算对也不算错。",
    ),
    "card.recovered.greedy": (
        "“{lost}” was guessed here, and it was wrong. This is the model's own likeliest token instead.",
        "这里猜的是“{lost}”，猜错了。换上的是大模型自己最可能写的 token。",
    ),
    "card.recovered.drawn": (
        "“{lost}” was guessed here and rejected. The model drew this one instead, from what its probabilities hold beyond "
        "the drafter's: that keeps the result the model's own.",
        "这里猜的是“{lost}”，被拒绝了。大模型换上了这一个，是从它的概率比草稿模型多出来的部分里抽的：这样结果才和大模型自己写的一样。",
    ),
    "card.recovered.noise": (
        "“{lost}” was guessed here, but the model's own draw was this token, so it takes the place.",
        "这里猜的是“{lost}”，但大模型自己抽到的是这一个，所以换成了它。",
    ),
    "card.bonus": (
        "{count:The guess|All guesses} of this round ({count}) {count:was|were} right, and the pass that checked {count:it|them} gave "
        "this token on top.",
        "这一轮的猜测（{count} 个）全部猜中；检查它们的那一遍计算，顺带又给出了这个 token。",
    ),
    "card.plain": (
        "The model wrote it by itself: one pass for one token, nothing was guessed in this round.",
        "大模型自己写的：一遍计算写一个 token，这一轮没有猜。",
    ),
    "card.plain.probe": (
        "Nothing was guessed in this round, on purpose: it measures the speed of plain decoding.",
        "这一轮特意不猜，用来测普通解码的速度。",
    ),
    "card.first": (
        "It comes out of reading the prompt: {prompt} tokens, {cached} of them known from before, in {time}. "
        "Guessing begins after it.",
        "它是读完提示就有的：提示共 {prompt} 个 token，其中 {cached} 个之前读过，用时 {time}。之后才开始猜。",
    ),
    "card.raw.both": (
        "Before temperature and filters the drafter gave it {draft} and the model {target}.",
        "在温度和过滤之前，草稿模型给它 {draft}，大模型给它 {target}。",
    ),
    "card.raw.model": (
        "Before temperature and filters the model gave it {target}.",
        "在温度和过滤之前，大模型给它 {target}。",
    ),
    "card.special": ("It is a control token, no text: {name}.", "它是控制 token，不是文字：{name}。"),
    "card.fragment": (
        "It is a part of a character; several tokens make up the whole.",
        "它只是一个字符的一部分，几个 token 合起来才是完整的字符。",
    ),
    "card.blank": ("It is white space.", "它是空白。"),
    "card.table": ("Every guess of this round, in order", "这一轮的所有猜测，按顺序"),
    "card.col.token": ("token", "token"),
    "card.col.probability": ("probability", "概率"),
    "card.col.draft": ("draft", "草稿"),
    "card.col.target": ("target", "大模型"),
    "card.col.accept": ("accept", "接受"),
    "card.col.drawn": ("drawn number", "抽到的数"),
    "card.col.decision": ("decision", "判定"),
    "card.outcome.accepted": ("accepted", "接受"),
    "card.outcome.rejected": ("rejected", "拒绝"),
    "card.outcome.discarded": ("not checked", "未检查"),
    "card.outcome.recovered": ("instead", "换上"),
    "card.outcome.bonus": ("extra", "多送"),
    "card.outcome.plain": ("plain", "直接写"),
    "card.none.unchecked": ("not checked", "未检查"),
    "card.none.drawn": ("no number drawn", "没有抽数"),
    "card.none.undrafted": ("not a guess", "不是猜的"),
    "card.none.unknown": ("not recorded", "没有记录"),
    "card.raw": ("raw {value}", "原始 {value}"),
    "card.raw.note": (
        "raw: before temperature and filters, which the rule does not compare",
        "原始：温度和过滤之前的概率，规则比较的不是它",
    ),
    "round.took": (
        "{tokens} {tokens:token|tokens} in {time} (model {verify})",
        "{tokens} 个 token，用时 {time}（大模型 {verify}）",
    ),
    "round.took.guessing": (
        "{tokens} {tokens:token|tokens} in {time} (guessing {draft}, model {verify})",
        "{tokens} 个 token，用时 {time}（猜 {draft}，大模型 {verify}）",
    ),
    # first minute
    "legend.word.green": ("Green", "绿色"),
    "legend.word.red": ("Red", "红色"),
    "legend.first.green": (
        "the small model guessed it and the big one agreed: almost free.",
        "小模型猜中、大模型认可的词，几乎白赚。",
    ),
    "legend.first.red": (
        "guessed wrong and thrown away. It is no part of the answer.",
        "猜错、扔掉的词，不算在回答里。",
    ),
    "legend.first.done": ("Got it", "知道了"),
    "legend.scale": ("How likely the model itself found a word:", "大模型自己觉得这个词有多大可能："),
    "legend.scale.expected": ("expected", "意料之中"),
    "legend.scale.surprising": ("surprising", "出人意料"),
    "load.start.why": ("This takes a moment.", "稍等一下。"),
    "load.compile.why": (
        "The arithmetic is built for this very processor. That happens once.",
        "为这台机器的处理器编译计算代码，只需要一次。",
    ),
    "load.fetch.why": (
        "It is downloaded once and kept on this computer; after that no network is needed.",
        "只下载一次，之后保存在这台电脑上，不再需要网络。",
    ),
    "load.unpack.why": (
        "The downloaded file is opened and checked. That happens once.",
        "打开并检查下载的文件，只需要一次。",
    ),
    "load.convert.why": (
        "The weights are put into the order in which this processor reads them fastest.",
        "把权重排成这台机器读起来最快的样子。",
    ),
    "load.load.why": ("The weights are read into memory.", "把权重读进内存。"),
    "load.warm_up.why": (
        "A few rounds are timed, so that the number of guesses can be chosen by what they cost here.",
        "先试跑几轮并计时，之后才知道在这台机器上猜几个最划算。",
    ),
    "load.ready.why": ("It is there in a moment.", "马上就好。"),
    "load.left.seconds": ("about {count} s left in this step", "这一步大约还要 {count} 秒"),
    "load.left.minutes": ("about {count} min left in this step", "这一步大约还要 {count} 分钟"),
    # prose
    "prose.code": ("Code", "代码"),
    "prose.table": ("Table", "表格"),
    # a recording as a file
    "trace.foreign": (
        "This is not a reply or race saved by Greenlight. Open one that was saved here with “Save as a file to replay”.",
        "这不是 Greenlight 的回放文件。请打开用“存成可回放的文件”存下来的文件。",
    ),
    "trace.version": (
        "This file was saved by another version of Greenlight, and this one cannot read it. Record it again.",
        "这个回放文件是别的版本的 Greenlight 存的，当前版本读不了。请重新录一次。",
    ),
    "trace.long": (
        "This file is too long for a saved reply or race: {limit} million characters at most.",
        "这个文件太长，不会是回放文件：最多 {limit} 百万个字符。",
    ),
    "trace.broken": (
        "This file is cut off, or no JSON at all. Copy or save it again.",
        "这个文件不完整，或者根本不是 JSON。请重新复制或保存一次。",
    ),
    "trace.lanes": (
        "A saved file holds one reply, or a race of two: without guesses and with them. This one holds something else.",
        "回放文件里应该是一段回答，或者普通和推测两条跑道。这个文件里不是。",
    ),
    "trace.damaged": (
        "This file is damaged or was changed by hand: what it says does not fit together. Save or record it again.",
        "这个回放文件损坏了，或者被人改过：里面的内容对不上。请重新保存或录一次。",
    ),
    "trace.missing": (
        "The recording “{name}” did not come with this copy of Greenlight. Run a race of your own instead.",
        "这份 Greenlight 里没有录好的“{name}”。可以自己跑一场。",
    ),
    # verdict: what a race came to
    "verdict.label": ("How it came out", "结果"),
    "verdict.faster": (
        "the plain speed here, counted after the first token.",
        "（普通解码算 1×），从首个 token 之后算起。",
    ),
    "verdict.same": (
        "the plain speed: guessing made hardly a difference here.",
        "（普通解码算 1×）：在这里猜不猜差不多。",
    ),
    "verdict.slower": (
        "the plain speed here: the guesses cost more than they saved.",
        "（普通解码算 1×）：在这里，猜花掉的时间比省下的多。",
    ),
    "verdict.doubtful": (
        "That is more than guessing can give ({tokens} tokens a pass): the machine was busy while plain decoding ran.",
        "这高过了推测能带来的上限（每遍计算 {tokens} 个 token）：普通解码跑的时候机器正忙。",
    ),
    "verdict.unknown": (
        "No speed-up to tell: speed is counted after the first token, and a lane wrote nothing after that.",
        "没法比较速度：速度从首个 token 之后算起，而有一条跑道在那之后什么也没写。",
    ),
    "verdict.cut": (
        "A lane was stopped or broke off, so all figures are of what was written until then.",
        "有一条跑道中途停下了，所以数字只包括停下之前写的部分。",
    ),
    "verdict.table": ("Both lanes in figures", "两条跑道的数据"),
    "verdict.table.reply": ("The reply in figures", "这段回答的数据"),
    "verdict.reply": ("this reply", "这段回答"),
    "verdict.figure": ("figure", "数据"),
    "verdict.time": ("whole time", "总用时"),
    "verdict.first": ("until the first token", "首个 token 用时"),
    "verdict.speed": ("tokens/s after it", "之后每秒 token 数"),
    "verdict.tokens": ("tokens", "token 数"),
    "verdict.passes": ("forward passes of the model", "大模型计算了几遍"),
    "verdict.passes.help": ("one reads the prompt, each round is one more", "读提示词一遍，之后每轮一遍"),
    "verdict.alpha": ("acceptance α", "接受率 α"),
    "verdict.alpha.help": ("guesses accepted / checked", "接受数 ÷ 检查数"),
    "verdict.tau": ("tokens a round with guesses, τ", "有猜测的轮，每轮 token 数 τ"),
    "verdict.none": ("none", "没有"),
    "verdict.text.same": ("Same text: yes, {count} of {count} tokens.", "文字相同：是，{count} 个 token 全部一样。"),
    "verdict.text.nothing": ("No text to compare: neither lane wrote a token.", "没有可比的文字：两条跑道都没写。"),
    "verdict.text.one": (
        "No text to compare: only one lane wrote anything.",
        "没有可比的文字：只有一条跑道写了东西。",
    ),
    "verdict.text.so_far.plain": (
        "Same text so far: yes, {count} of {count} tokens. The plain lane ended earlier.",
        "到此为止文字相同：是，{count} 个 token 全部一样。普通解码那条先停了。",
    ),
    "verdict.text.so_far.speculative": (
        "Same text so far: yes, {count} of {count} tokens. The speculative lane ended earlier.",
        "到此为止文字相同：是，{count} 个 token 全部一样。推测解码那条先停了。",
    ),
    "verdict.text.parted": (
        "Same text: no. The first {count} {count:token is|tokens are} the same; then plain wrote “{plain}”, and speculative “{speculative}”.",
        "文字相同：否。前 {count} 个 token 一样；接着普通解码写的是“{plain}”，推测解码写的是“{speculative}”。",
    ),
    "verdict.text.parted.first": (
        "Same text: no. Plain begins with “{plain}”, speculative with “{speculative}”.",
        "文字相同：否。普通解码开头是“{plain}”，推测解码开头是“{speculative}”。",
    ),
    "verdict.margin": (
        "To the plain lane the two lay {margin} apart in logits ({plain} against {speculative} in probability, before "
        "temperature and filters).",
        "在普通解码那条看来，这两个的 logits 相差 {margin}（温度和过滤之前，概率是 {plain} 对 {speculative}）。",
    ),
    "verdict.why.draws": (
        "That is as it should be: at temperature {temperature} every reply is a fresh draw, and checking guesses by "
        "rejection sampling uses the random numbers otherwise than plain decoding does. Both texts are equally the model's own. With “same dice” they would agree.",
        "这是正常的：温度为 {temperature} 时，每次回答都是重新抽的，而拒绝采样用随机数的方式和普通解码不一样。两段文字都是大模型自己会写的。"
        "想让它们一致，就选“同一副骰子”。",
    ),
    "verdict.why.rounding": (
        "The kernels are not proven exact here: checking several tokens at once may round differently than one at a time, and "
        "where two tokens are nearly even, that decides.",
        "这里的计算内核没有证明逐位一致：一次检查几个 token 和一次算一个，舍入可能不同；两个 token 差不多可能时，这一点差别就决定了写哪个。",
    ),
    "verdict.why.settings": (
        "The lanes were not run with the same settings and seed, so they need not agree.",
        "两条跑道的设置和种子不一样，所以文字不必相同。",
    ),
    "verdict.why.fault": (
        "With these settings and exact kernels that should not happen. Please report it, with the race saved as a file to replay.",
        "按这些设置和逐位一致的内核，本不该这样。请附上回放文件告诉我们。",
    ),
    "verdict.why.unknown": (
        "Why cannot be told: what wrote these lanes was not recorded.",
        "原因说不准：没有记录这两条跑道是用什么写的。",
    ),
    "verdict.again": ("Race again with", "再跑一场："),
    "verdict.again.auto": ("K chosen automatically", "自动选 K"),
    # inspector: one round up close
    "inspect.label": ("One round up close", "细看一轮"),
    "inspect.prev": ("Previous round", "上一轮"),
    "inspect.next": ("Next round", "下一轮"),
    "inspect.prompt": ("Before the first round: the prompt is read", "第一轮之前：读提示词"),
    "inspect.before": ("The text up to here ends with", "到这里为止，文字的结尾是"),
    "inspect.before.prompt": ("The reply begins here. The prompt ends with", "回答从这里开始。提示词的结尾是"),
    "inspect.tokens": (
        "The tokens of this round, in order; press one to see why",
        "这一轮的 token，按顺序；点一个看原因",
    ),
    "inspect.tokens.plain": ("What this round wrote", "这一轮写的"),
    "inspect.first": ("first", "第一个"),
    "inspect.behind": ("not checked: behind a wrong guess", "没检查：前面猜错了"),
    "inspect.cut": ("not checked: the reply ended", "没检查：回答已经结束"),
    "inspect.ended": (
        "The reply ended within this round, so nothing stands behind these tokens.",
        "回答在这一轮里结束了，所以这些 token 后面没有再写。",
    ),
    "inspect.empty": (
        "The reply ended here before this round could add anything to it.",
        "这一轮还没来得及写，回答就结束了。",
    ),
    "inspect.draft_top": ("What the drafter found likely here", "草稿模型觉得这里可能是"),
    "inspect.draft_top.copy": ("The guess was copied, which counts as certain", "猜测是照抄的，算作十足把握"),
    "inspect.target_top": ("What the big model found likely here", "大模型觉得这里可能是"),
    "inspect.compared": (
        "Probabilities after temperature and filters: these are what the rule compares.",
        "这是温度和过滤之后的概率，规则比较的就是它们。",
    ),
    "inspect.compared.noise": (
        "Probabilities after temperature and filters. Under shared noise the rule compares no probabilities: the model draws a "
        "token of its own, and the guess stands if it is that very one.",
        "这是温度和过滤之后的概率。共享噪声规则不比较概率：大模型自己抽一个 token，猜测正好是它才留下。",
    ),
    "inspect.greedy": (
        "Probabilities before temperature. At temperature 0 only the big model's likeliest token counts.",
        "这是温度之前的概率。温度为 0 时，只认大模型觉得最可能的那个 token。",
    ),
    "inspect.residual": ("What was left to draw from", "剩下来可以抽的"),
    "inspect.residual.why": (
        "What was left of the model's own probabilities once the drafter's were taken away (never below 0), scaled up to 1 again.",
        "从大模型自己的概率里减去草稿模型给的概率（减成负数的算 0），剩下的再放大到合计为 1。",
    ),
    "inspect.drawn": ("The number drawn was {drawn}; it fell on “{token}”.", "抽到的数是 {drawn}，落在“{token}”上。"),
    "inspect.own": ("What the big model chose from", "大模型从这些里面选"),
    "inspect.own.why": (
        "Nothing was guessed for this place: the token was drawn from the model's own probabilities.",
        "这个位置没有猜：是从大模型自己的概率里抽的。",
    ),
    "inspect.noise.instead": (
        "Under shared noise nothing is taken away: the model draws from its own probabilities, with the same dice as if "
        "nothing had been guessed. It drew “{token}”.",
        "共享噪声规则下，什么也不用减：大模型照自己的概率来抽，用的随机数和没有猜的时候一样。它抽到的是“{token}”。",
    ),
    "inspect.noise.own": (
        "Nothing was guessed for this place: the model drew “{token}” from its own probabilities, with the shared noise.",
        "这个位置没有猜：大模型用共享的噪声，照自己的概率抽到了“{token}”。",
    ),
    "inspect.likeliest": (
        "At temperature 0 chance decides nothing: the model's likeliest token stands here. Before temperature it found these likely.",
        "温度为 0 时不靠随机数：这里写的就是大模型觉得最可能的 token。下面是温度之前的概率。",
    ),
    "inspect.likeliest.instead": (
        "At temperature 0 chance decides nothing: “{token}” is the big model's likeliest token, so it stands here instead.",
        "温度为 0 时不靠随机数：“{token}”是大模型觉得最可能的 token，所以换成了它。",
    ),
    "inspect.probability": ("probability", "概率"),
    "inspect.mark.guess": ("guessed", "猜的"),
    "inspect.mark.written": ("written", "写下的"),
    "inspect.unrecorded": (
        "The likeliest tokens were not recorded here. A race records them, and so does the chat with “Record the likeliest tokens” "
        "in its settings.",
        "这里没有记录最可能的几个 token。赛跑时会记录；对话里打开设置中的“记录最可能的 token”也会。",
    ),
    "inspect.unrecorded.first": (
        "For the first token of a reply the likeliest tokens are not recorded.",
        "回答的第一个 token，不记录最可能的几个。",
    ),
    "inspect.unrecorded.unchecked": (
        "It was never checked, so there is nothing to compare.",
        "它没有被检查，所以没有可比的概率。",
    ),
    "inspect.time": ("Where the time of this round went: {total}", "这一轮的时间花在哪里：共 {total}"),
    "inspect.time.detail": (
        "Looking up these probabilities took {time} more, which counts for nobody.",
        "查这些概率另外用了 {time}，不计入任何一方。",
    ),
    # a recording as a web page of its own
    "save.made": ("Recorded {date}", "录制于 {date}"),
    "save.prompt": ("Prompt", "提示词"),
    "save.system": ("System prompt", "系统提示"),
    "save.plain": ("Plain decoding", "普通解码"),
    "save.speculative": ("Speculative decoding", "推测解码"),
    "save.reply": ("Reply", "回答"),
    "save.empty": ("Nothing was written.", "什么也没写。"),
    "save.hint": ("Point at a word to see what it is.", "把指针移到词上，就能看到它是什么。"),
    "save.token": ("{kind}; round {index}", "{kind}；第 {index} 轮"),
    "save.token.prob": ("{token}; the model's own probability: {prob}", "{token}；大模型自己给它的概率：{prob}"),
    "save.how": (
        "Times are each reply's own computing, measured on the machine that recorded it; waiting and drawing do not count. "
        "This page needs no network and no script.",
        "时间只算每段回答自己的计算，在录制的那台机器上测得；排队和显示不算。这个页面不需要网络，也不需要脚本。",
    ),
    "verdict.unclear": (
        "the plain speed: no clear difference, for single passes scatter more than that here.",
        "（普通解码算 1×）：差别不明显，单次计算的快慢波动比这还大。",
    ),
}
TEXT |= LEARN | MODELS | TERMS | WHEN


class _Counting(Formatter):
    """`{count:token|tokens}` chooses the singular or the plural by the number."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if "|" not in format_spec:
            return str(super().format_field(value, format_spec))
        one, many = format_spec.split("|")
        return one if value == 1 else many


def text(key: str, lang: Lang, **values: object) -> str:
    """The words for `key`. An unknown key is a mistake in the program and raises KeyError."""
    return _Counting().vformat(TEXT[key][LANGS.index(lang)], (), values)
