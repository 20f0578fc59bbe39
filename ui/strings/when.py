"""The words of the tab "When to use": the advisor and the load lab; part of the one table in `ui.strings`."""

from __future__ import annotations

WHEN: dict[str, tuple[str, str]] = {
    "when.title": ("When speculation pays", "推测解码什么时候划算"),
    "when.lead": (
        "It pays where a reply is long, somebody waits for it and the machine has arithmetic to spare. Each of these "
        "sentences can be measured here.",
        "回答长、有人在等、机器的算力还有富余，就划算。这里的每一句话都可以亲手测一遍。",
    ),
    "when.unanswered": (
        "The server does not answer: is it still running? Try again.",
        "服务器没有回应：它还在运行吗？请再试一次。",
    ),
    # the advisor
    "advise.title": ("Should I speculate?", "我该不该用推测解码？"),
    "advise.tokens": ("Usual length of a reply", "回答一般有多长"),
    "advise.tokens.4": ("a letter or a word", "一个字母或一个词"),
    "advise.tokens.16": ("a line", "一行"),
    "advise.tokens.64": ("a paragraph", "一段"),
    "advise.tokens.256": ("long", "很长"),
    "advise.users": ("Replies written at once", "同时在写的回答"),
    "advise.goal": ("What matters more", "更看重什么"),
    "advise.goal.latency": ("that each reader waits less", "每个读者少等一会儿"),
    "advise.goal.throughput": ("most tokens a second in all", "总共每秒写得最多"),
    "advise.busy": ("Is the device busy with them already", "设备是否已经忙满"),
    "advise.memory": ("Memory left for a draft model", "还有内存放草稿模型吗"),
    "advise.yes": ("yes", "是"),
    "advise.no": ("no", "否"),
    "advise.kind": ("What is written", "写的是什么"),
    "advise.kind.chat": ("an assistant's answers", "助手的回答"),
    "advise.kind.rag": ("answers from a given passage", "根据给定材料回答"),
    "advise.kind.summary": ("summaries", "摘要"),
    "advise.kind.code": ("code", "代码"),
    "advise.kind.copy": ("the given text, changed a little", "把给定文本略作修改"),
    "advise.kind.poem": ("free writing", "自由写作"),
    "advise.verdict": ("What to do", "结论"),
    "advise.verdict.yes": ("Yes, speculate.", "用推测解码。"),
    "advise.verdict.no": ("No, decode plainly.", "不要用，普通解码就好。"),
    "advise.verdict.even": ("It hardly matters: measure your own load.", "差别不大：请按你自己的负载测一测。"),
    "advise.side.for": ("for", "支持"),
    "advise.side.against": ("against", "反对"),
    "advise.side.unclear": ("no clear difference", "差别不明显"),
    "advise.side.note": ("note", "注意"),
    "advise.from.own": ("measured here", "在这里测得"),
    "advise.from.reference": ("reference machine", "参考机器"),
    "advise.from.none": ("the usual rule, not measured", "通行的经验，未经测量"),
    "advise.measure": ("measure it", "测一测"),
    "advise.command": ("The same on a server, with vLLM", "在服务器上用 vLLM 做同样的事"),
    "advise.command.note": (
        "Put in your own model. A trained head belongs to one target model. Measure there too: other weights and another "
        "device have another crossover.",
        "请换成你自己的模型。训练好的草稿头只配一个目标模型。在服务器上也要测：权重不同、设备不同，分界点就不同。",
    ),
    "advise.command.none": ("plain decoding", "普通解码"),
    "advise.command.ngram": ("n-gram: copies from the prompt, needs no memory", "n-gram：从前文里抄，不占内存"),
    "advise.command.head": ("EAGLE-3: a trained head", "EAGLE-3：训练好的草稿头"),
    "advise.why.length.for": (
        "A whole reply of {tokens} tokens is {gain} times as fast, its first token included.",
        "{tokens} 个 token 的回答，从提问到写完一共快到 {gain} 倍，首个 token 也算在内。",
    ),
    "advise.why.length.against": (
        "A whole reply of {tokens} {tokens:token|tokens} is only {gain} times as fast: the first token comes no sooner, and little follows it.",
        "{tokens} 个 token 的回答总共只快到 {gain} 倍：首个 token 不会更早，后面又没写多少。",
    ),
    "advise.why.length.unclear": (
        "A whole reply of {tokens} {tokens:token|tokens} is {gain} times as fast, but repeats scatter by as much.",
        "{tokens} 个 token 的回答测得 {gain} 倍，但重复测量的波动也有这么大。",
    ),
    "advise.said.long": (
        "Long replies gain: the time between tokens is what gets shorter.",
        "长回答受益：缩短的是 token 与 token 之间的时间。",
    ),
    "advise.said.short": (
        "Short replies gain nothing: the first token comes no sooner.",
        "短回答得不到好处：首个 token 不会更早。",
    ),
    "advise.why.load.for": (
        "With {users} {users:reply|replies} at once, guessing writes {gain} times the tokens of plain decoding.",
        "{users} 个回答同时写时，带猜测写出的 token 是普通解码的 {gain} 倍。",
    ),
    "advise.why.load.against": (
        "With {users} {users:reply|replies} at once, guessing writes only {gain} times the tokens of plain decoding.",
        "{users} 个回答同时写时，带猜测写出的 token 只有普通解码的 {gain} 倍。",
    ),
    "advise.why.load.against.crossover": (
        "With {users} {users:reply|replies} at once, guessing writes only {gain} times the tokens of plain decoding; it stops paying at about {crossover}.",
        "{users} 个回答同时写时，带猜测写出的 token 只有普通解码的 {gain} 倍；大约到 {crossover} 个就不再划算。",
    ),
    "advise.why.load.unclear": (
        "With {users} {users:reply|replies} at once there is no clear difference ({gain} times): repeats scatter by as much.",
        "{users} 个回答同时写时差别不明显（{gain} 倍）：重复测量的波动也有这么大。",
    ),
    "advise.why.busy.against": (
        "A busy device has no arithmetic to spare: with {users} at once, guessing wrote only {gain} times the tokens of plain decoding.",
        "设备忙满时没有富余的算力：{users} 个回答同时写时，带猜测只写出普通解码 {gain} 倍的 token。",
    ),
    "advise.why.busy.against.crossover": (
        "A busy device has no arithmetic to spare: with {users} at once, guessing wrote only {gain} times the tokens of plain "
        "decoding, and it stopped paying at about {crossover}.",
        "设备忙满时没有富余的算力：{users} 个回答同时写时，带猜测只写出普通解码 {gain} 倍的 token，大约到 {crossover} 个就不再划算。",
    ),
    "advise.why.busy.unclear": (
        "The heaviest load that was measured, {users} at once, still gave {gain} times the tokens; a device that is full may give fewer.",
        "测过的最重负载（{users} 个同时写）仍有 {gain} 倍；设备真正忙满时可能更少。",
    ),
    "advise.said.load.for": (
        "With few replies at once the device has arithmetic to spare ({users} here).",
        "同时写的回答不多（这里是 {users} 个），设备的算力还有富余。",
    ),
    "advise.said.load.against": (
        "A device busy with many replies ({users} here, or full already) has no arithmetic to spare, and guessing can slow it down.",
        "设备忙着写很多回答（这里是 {users} 个，或者已经忙满），没有富余的算力，猜测反而可能拖慢它。",
    ),
    "advise.said.load.unclear": (
        "With {users} {users:reply|replies} at once it depends on the device.",
        "{users} 个回答同时写时，要看设备。",
    ),
    "advise.why.latency.for": (
        "Between tokens a reader waits less: {gain} times as fast.",
        "token 之间等得更少：快到 {gain} 倍。",
    ),
    "advise.why.latency.for.ttft": (
        "Between tokens a reader waits less: {gain} times as fast. The first token takes what it took ({plain} plain, {spec} with guesses).",
        "token 之间等得更少：快到 {gain} 倍。首个 token 和原来一样（普通 {plain}，带猜测 {spec}）。",
    ),
    "advise.why.latency.unclear": (
        "Between tokens it is {gain} times as fast: hardly a difference.",
        "token 之间测得 {gain} 倍：几乎没有差别。",
    ),
    "advise.why.latency.against": (
        "Between tokens it is only {gain} times as fast here: guessing makes a reader wait longer.",
        "token 之间这里只有 {gain} 倍：猜测反而让读者多等。",
    ),
    "advise.said.latency": (
        "Whoever waits for a reply gains: the time between tokens gets shorter.",
        "有人在等回答时受益：token 之间的时间变短。",
    ),
    "advise.why.throughput.against": (
        "The most tokens a second: {plain} plain (with {plain_users} at once), {spec} with guesses (with {spec_users}). Fill the batch instead.",
        "每秒写得最多：普通解码 {plain} 个（{plain_users} 个回答同时写），带猜测 {spec} 个（{spec_users} 个）。不如把批次填满。",
    ),
    "advise.why.throughput.for": (
        "The usual rule says no, but here guessing wrote the most tokens a second: {spec} (with {spec_users} at once) against {plain} "
        "(with {plain_users}).",
        "通行的经验说不用，但这里带猜测每秒写得最多：{spec} 个（{spec_users} 个回答同时写），普通解码 {plain} 个（{plain_users} 个）。",
    ),
    "advise.said.throughput": (
        "For throughput the batch is filled until arithmetic is what limits it; then guesses that are thrown away cost tokens.",
        "追求吞吐时会把批次填到算力成为瓶颈；这时猜错的部分就是白白花掉的算力。",
    ),
    "advise.why.memory.for": (
        "Moving the weights sets the time: checking {guesses} guesses takes {cost} times as long as a forward for one token.",
        "耗时主要在搬运权重：一次核对 {guesses} 个猜测，用时是只算一个 token 的前向的 {cost} 倍。",
    ),
    "advise.why.memory.for.same": (
        "Moving the weights sets the time: checking {guesses} guesses takes no longer than a forward for one token, as far as "
        "repeats can tell.",
        "耗时主要在搬运权重：就重复测量能分辨的程度而言，一次核对 {guesses} 个猜测并不比只算一个 token 更久。",
    ),
    "advise.why.memory.unclear": (
        "Checking {guesses} guesses takes {cost} times as long as a forward for one token: arithmetic counts here, not memory alone.",
        "一次核对 {guesses} 个猜测，用时是只算一个 token 的前向的 {cost} 倍：这里算力也是瓶颈，不只是内存。",
    ),
    "advise.said.memory": (
        "Where moving the weights sets the time, checking several tokens costs hardly more than making one.",
        "耗时主要在搬运权重时，核对几个 token 几乎不比算一个更贵。",
    ),
    "advise.why.text.for": (
        "Such text can be guessed ({kind}): {gain} times as fast.",
        "这类文字猜得中（{kind}）：快到 {gain} 倍。",
    ),
    "advise.why.text.against": (
        "Such text is hard to guess ({kind}): only {gain} times as fast.",
        "这类文字很难猜（{kind}）：只有 {gain} 倍。",
    ),
    "advise.why.text.unclear": (
        "For such text ({kind}) there is no clear difference: {gain} times, within what repeats scatter.",
        "对这类文字（{kind}）差别不明显：{gain} 倍，没有超出重复测量的波动。",
    ),
    "advise.why.no_memory": (
        "Without memory for a draft model, n-gram remains: it copies from the prompt and holds no weights.",
        "没有内存放草稿模型时还有 n-gram：它从前文里抄，不需要权重。",
    ),
    # the article's table
    "advise.rules": ("Seven rules, measured", "七条经验，逐条实测"),
    "advise.rules.lead": (
        "The rules are those of vLLM's community; the right-hand side is what was measured. Rows in bold fit your answers.",
        "规则来自 vLLM 社区的经验，右边是实测。加粗的几行符合你上面的回答。",
    ),
    "advise.rules.table": (
        "When to speculate: what is said, and what was measured",
        "何时用推测解码：怎么说，测得怎样",
    ),
    "advise.rules.situation": ("situation", "情形"),
    "advise.rules.said": ("speculate?", "用吗？"),
    "advise.rules.here": ("what was measured", "实测"),
    "advise.rule.long": ("long replies are expected", "预期回答较长"),
    "advise.rule.idle": ("the device is not saturated", "设备没有忙满"),
    "advise.rule.latency": ("latency matters", "看重延迟"),
    "advise.rule.memory": ("memory movement is the limit", "瓶颈在内存搬运"),
    "advise.rule.short": ("short replies are expected", "预期回答很短"),
    "advise.rule.busy": ("requests saturate the device", "请求已经占满设备"),
    "advise.rule.throughput": ("throughput matters", "看重吞吐"),
    "advise.rule.applies": ("fits your answers", "符合你的回答"),
    # the load lab
    "lab.title": ("Measure it", "动手测"),
    "lab.lead": (
        "Each experiment runs the real model on this machine, in turn with replies that are being written. Until you run "
        "one, it shows what the reference machine measured.",
        "每个实验都在这台机器上运行真正的模型，和正在写的回答轮流进行。在你运行之前，显示的是参考机器的结果。",
    ),
    "lab.run": ("Measure here", "在这里测"),
    "lab.cancel": ("Cancel", "取消"),
    "lab.csv": ("Save as CSV", "存成 CSV"),
    "lab.json": ("Save as JSON", "存成 JSON"),
    "lab.open": ("Figure and numbers", "图和数字"),
    "lab.reference": ("Reference machine", "参考机器"),
    "lab.own": ("This machine, measured for you", "这台机器，刚为你测的"),
    "lab.missing": ("Nothing has been measured yet.", "还没有测过。"),
    "lab.partial": ("Measuring: what there is so far. No conclusion yet.", "正在测：这是目前测到的，还没有结论。"),
    "lab.disturbed": (
        "Other replies were written meanwhile, so these figures may be off.",
        "其间还写了别的回答，数字可能有偏差。",
    ),
    "lab.cut": ("Less was measured than planned: {why}", "没有测完全部计划：{why}"),
    "lab.cut.time": (
        "Less was measured than planned: it took longer than {seconds} s.",
        "没有测完全部计划：超过了 {seconds} 秒。",
    ),
    "lab.cut.memory": (
        "Less was measured than planned: there is memory for {users} users at once.",
        "没有测完全部计划：内存只够 {users} 个用户同时使用。",
    ),
    "lab.took": ("{threads} threads · {made} · took {seconds} s", "{threads} 线程 · {made} · 用时 {seconds} 秒"),
    "lab.running": ("Progress of the experiment", "实验进度"),
    "lab.prompt": (
        "A prompt of your own instead of the three kinds of text (optional)",
        "用你自己的提示词代替这三类文字（可不填）",
    ),
    "lab.about.seconds": ("takes about {count} s", "大约要 {count} 秒"),
    "lab.about.minutes": ("takes about {count} min", "大约要 {count} 分钟"),
    "lab.begins": ("Getting ready", "准备中"),
    "lab.progress": ("{done} of {total} measurements", "已测 {done}／{total} 次"),
    "lab.left.seconds": ("about {count} s left", "大约还要 {count} 秒"),
    "lab.left.minutes": ("about {count} min left", "大约还要 {count} 分钟"),
    "lab.cancelled": ("Cancelled; nothing of it was kept.", "已取消，没有保留任何结果。"),
    "lab.busy": (
        "An experiment of yours is running: wait for it or cancel it first.",
        "你已有一个实验在运行：请等它结束，或先取消它。",
    ),
    "lab.full": (
        "The engine is busy with another experiment or too many replies: try again in a moment.",
        "引擎正忙于别的实验或太多回答：请稍后再试。",
    ),
    "lab.nobody": (
        "There is nobody who guesses: start the app with a drafter to run this experiment.",
        "现在没有谁来猜：请带上草稿模型启动程序，再做这个实验。",
    ),
    "lab.failed": ("It could not be measured. {message}", "没能测成。{message}"),
    "lab.bug": (
        "Something went wrong in the app and the experiment ended; nothing of it was kept (see the log).",
        "程序出了错，实验已中止，没有保留任何结果（详见日志）。",
    ),
    "lab.none": ("Too little was measured for a conclusion.", "测到的太少，得不出结论。"),
    "lab.and": ("; ", "；"),
    "lab.rate.name": ("How many at once", "同时有多少人"),
    "lab.rate.asks": (
        "That many replies decoded together in real batched forwards, plain, with a fixed number of guesses, and with K chosen "
        "by the app.",
        "这么多个回答在真实的批量前向里一起写：普通解码、固定猜测个数、由程序自动选 K。",
    ),
    "lab.rate.crossover": (
        "Speculation stops paying at about {users} users at once: with {first} it writes {gain} times the tokens of plain decoding, "
        "with {last} only {loss} times.",
        "大约到 {users} 个用户同时使用时，推测解码就不再划算：{first} 个用户时写出的 token 是普通解码的 {gain} 倍，{last} 个时只有 {loss} 倍。",
    ),
    "lab.rate.always": (
        "Speculation paid at every load up to {last} users: {gain} times the tokens of plain decoding with {first}, {loss} times "
        "with {last}. Where it stops lies beyond what was measured.",
        "直到 {last} 个用户，推测解码一直划算：{first} 个用户时是普通解码的 {gain} 倍，{last} 个时是 {loss} 倍。分界点在测过的范围之外。",
    ),
    "lab.rate.never": (
        "Speculation paid at no load: {gain} times the tokens of plain decoding with {first}, {loss} times with {last}.",
        "任何负载下推测解码都不划算：{first} 个用户时是普通解码的 {gain} 倍，{last} 个时是 {loss} 倍。",
    ),
    "lab.rate.fades": (
        "Speculation clearly pays up to {users} users at once ({gain} times with {first}); beyond that there is no clear difference "
        "({loss} times with {last}).",
        "到 {users} 个用户为止推测解码明显划算（{first} 个时 {gain} 倍）；再多就看不出明显差别（{last} 个时 {loss} 倍）。",
    ),
    "lab.rate.unclear": (
        "No clear difference at any load, from {gain} times with {first} to {loss} times with {last}: repeats scatter by more.",
        "任何负载下差别都不明显，从 {first} 个用户时的 {gain} 倍到 {last} 个时的 {loss} 倍：重复测量的波动更大。",
    ),
    "lab.rate.totals": (
        "From {first} to {last} users, plain decoding goes from {plain_first} to {plain_last} tokens/s in all and speculation from "
        "{spec_first} to {spec_last}; each of {last} users then gets {each_plain} and {each_spec} tokens/s.",
        "从 {first} 个到 {last} 个用户，普通解码总共从每秒 {plain_first} 个 token 变为 {plain_last} 个，推测解码从 {spec_first} 个变为 "
        "{spec_last} 个；{last} 个用户时，每人分到的分别是每秒 {each_plain} 个和 {each_spec} 个。",
    ),
    "lab.length.name": ("How long the reply", "回答有多长"),
    "lab.length.asks": (
        "The same requests with replies of 1 to 256 tokens, plain and with guesses, from the question to the last token.",
        "同样的请求，回答 1 到 256 个 token，普通解码和带猜测各写一遍，从提问算到最后一个 token。",
    ),
    "lab.length.grows": (
        "The gain grows with the reply: {few} times as fast for {first} {first:token|tokens}, {many} times for {last}.",
        "回答越长，提速越多：{first} 个 token 时 {few} 倍，{last} 个时 {many} 倍。",
    ),
    "lab.length.pays": (
        "A reply of {last} tokens is {many} times as fast as a whole, one of {first} {first:token|tokens} {few} times; that longer ones gain "
        "more cannot be told from these repeats.",
        "{last} 个 token 的回答总共快到 {many} 倍，{first} 个的 {few} 倍；从这些重复测量看不出更长是否更快。",
    ),
    "lab.length.slower": (
        "Even a reply of {last} tokens is only {many} times as fast as plain decoding ({few} times for {first}): guessing costs more "
        "than it gives here.",
        "连 {last} 个 token 的回答也只有普通解码的 {many} 倍（{first} 个时 {few} 倍）：在这里猜测得不偿失。",
    ),
    "lab.length.unclear": (
        "No clear difference for whole requests, from {few} times for {first} {first:token|tokens} to {many} times for {last}: repeats scatter by more.",
        "整个请求的差别不明显，从 {first} 个 token 时的 {few} 倍到 {last} 个时的 {many} 倍：重复测量的波动更大。",
    ),
    "lab.length.ttft.same": (
        "The first token comes no sooner: {plain} plain, {spec} with guesses ({change}, within 5 %).",
        "首个 token 不会更早：普通 {plain}，带猜测 {spec}（{change}，在 5 % 以内）。",
    ),
    "lab.length.ttft.other": (
        "The first token differs here by more than 5 %: {plain} plain, {spec} with guesses ({change}).",
        "首个 token 在这里相差超过 5 %：普通 {plain}，带猜测 {spec}（{change}）。",
    ),
    "lab.k.name": ("How many guesses", "每轮猜几个"),
    "lab.k.asks": (
        "The speed-up with 1 to 8 guesses a round (K), and what the formula makes of the acceptance rate and the measured costs.",
        "每轮猜 1 到 8 个（K）时的提速，以及公式由接受率和实测耗时算出的结果。",
    ),
    "lab.k.best": ("The fastest: {parts}.", "最快的是：{parts}。"),
    "lab.k.part": ("{kind} with K = {k} ({gain} times)", "{kind}用 K = {k}（{gain} 倍）"),
    "lab.k.part.others": (
        "{kind} with K = {k} ({gain} times; K = {others} not clearly different)",
        "{kind}用 K = {k}（{gain} 倍；与 K = {others} 差别不明显）",
    ),
    "lab.k.formula": (
        "The formula predicts K = {k} as the best of all texts together, measured was K = {mean}; its speed-ups are {error} off on average.",
        "各类文字合起来看，公式预测 K = {k} 最好，实测是 K = {mean}；预测的提速平均相差 {error}。",
    ),
    "lab.temperature.name": ("How random", "有多随机"),
    "lab.temperature.asks": (
        "The share of checked guesses that is accepted, by temperature, under both acceptance rules.",
        "不同温度下，两种接受规则各接受了多少被检查的猜测。",
    ),
    "lab.temperature.all": ("The acceptance rate from cold to warm: {parts}.", "从低温到高温的接受率：{parts}。"),
    "lab.temperature.falls": (
        "under {rule} it falls from {from} at temperature {cold} to {to} at {warm}",
        "{rule}从温度 {cold} 的 {from} 降到 {warm} 的 {to}",
    ),
    "lab.temperature.rises": (
        "under {rule} it rises from {from} at temperature {cold} to {to} at {warm}",
        "{rule}从温度 {cold} 的 {from} 升到 {warm} 的 {to}",
    ),
    "lab.temperature.same": (
        "under {rule} no clear difference between temperature {cold} ({from}) and {warm} ({to})",
        "{rule}在温度 {cold}（{from}）和 {warm}（{to}）之间差别不明显",
    ),
    "lab.temperature.speeds": ("The speed-up goes with it: {parts}.", "提速随之变化：{parts}。"),
    "lab.temperature.speed": ("{from} to {to} times under {rule}", "{rule}从 {from} 倍到 {to} 倍"),
    "lab.text.name": ("What is written", "写的是什么"),
    "lab.text.asks": (
        "The same settings for texts that copy their prompt, code, answers from a passage, an assistant's answers, a single letter and a poem.",
        "同样的设置，写不同的文字：照抄改写、代码、根据材料回答、助手的回答、只答一个字母、写诗。",
    ),
    "lab.text.best": ("It pays most for {best} and least for {worst}.", "最划算的是{best}，最不划算的是{worst}。"),
    "lab.text.alike": (
        "No clear difference between the texts: from {best} to {worst}.",
        "各类文字差别不明显：从{best}到{worst}。",
    ),
    "lab.text.one": ("Measured: {part}.", "测得：{part}。"),
    "lab.text.part": ("{kind} ({gain} times)", "{kind}（{gain} 倍）"),
    "lab.text.part.alpha": (
        "{kind} ({gain} times, {alpha} of guesses accepted)",
        "{kind}（{gain} 倍，接受率 {alpha}）",
    ),
    "lab.text.slower": ("It is slower than plain decoding for: {kinds}.", "比普通解码还慢的有：{kinds}。"),
    "lab.text.unclear": (
        "No clear difference from plain decoding for: {kinds}.",
        "和普通解码差别不明显的有：{kinds}。",
    ),
    "lab.text.all": (
        "It beats plain decoding for all {count}, beyond what repeats scatter.",
        "{count} 类文字全都比普通解码快，超出了重复测量的波动。",
    ),
    "lab.rows.name": ("What a forward costs", "一次前向要多久"),
    "lab.rows.asks": (
        "The time of one forward of the big model over 1 to 256 rows, beside the time that reading its weights takes and the time of the arithmetic.",
        "目标模型一次前向处理 1 到 256 行所花的时间，并画出读一遍权重的时间和纯计算的时间。",
    ),
    "lab.rows.cost": (
        "A forward over {rows} rows takes {more} ms and one over a single row {one} ms: checking {guesses} guesses takes {cost} times as long as writing one token.",
        "一次前向处理 {rows} 行要 {more} 毫秒，只处理 1 行要 {one} 毫秒：核对 {guesses} 个猜测的用时是写一个 token 的 {cost} 倍。",
    ),
    "lab.rows.same": (
        "No clear difference between a forward over {rows} rows ({more} ms) and one over a single row ({one} ms): what {guesses} "
        "guesses cost is less than repeats scatter.",
        "一次前向处理 {rows} 行（{more} 毫秒）和只处理 1 行（{one} 毫秒）差别不明显：核对 {guesses} 个猜测的开销比重复测量的波动还小。",
    ),
    "lab.rows.each": (
        "Over {rows} rows each costs {ms} ms, alone it costs {one} ms: the weights are moved once for all.",
        "{rows} 行一起算时每行 {ms} 毫秒，单独一行要 {one} 毫秒：权重只搬运一次，大家共用。",
    ),
    "lab.rows.knee": (
        "Reading the weights takes {floor} ms; from about {rows} rows on the arithmetic takes longer, and every further guess costs time.",
        "读一遍权重要 {floor} 毫秒；大约从 {rows} 行起，计算比读权重更久，每多猜一个都要花时间。",
    ),
    "lab.series.plain": ("plain", "普通解码"),
    "lab.series.speculative": ("fixed K", "固定 K"),
    "lab.series.auto": ("K automatic", "自动选 K"),
    "lab.series.predicted": ("formula", "公式"),
    "lab.series.measured": ("measured", "实测"),
    "lab.series.floor": ("reading the weights", "读权重"),
    "lab.series.compute": ("arithmetic", "纯计算"),
    "lab.series.own": ("your prompt", "你的提示词"),
    "lab.series.copy": ("rewriting", "照抄改写"),
    "lab.series.code": ("code", "代码"),
    "lab.series.summary": ("summary", "摘要"),
    "lab.series.rag": ("from a passage", "根据材料回答"),
    "lab.series.chat": ("long answer", "助手长答"),
    "lab.series.choice": ("multiple choice", "选择题"),
    "lab.series.poem": ("poem", "写诗"),
    "lab.series.rejection": ("rejection sampling", "拒绝采样"),
    "lab.series.shared_noise": ("shared noise", "共享噪声"),
    "lab.chart.rate": ("Tokens a second, all users together", "所有用户加起来每秒的 token 数"),
    "lab.chart.each": ("Tokens a second, each user", "每个用户每秒的 token 数"),
    "lab.chart.length": ("Speed-up of the whole request", "整个请求的提速"),
    "lab.chart.ttft": ("Time to the first token", "首个 token 的时间"),
    "lab.chart.k": ("Speed-up by guesses a round", "每轮猜几个与提速"),
    "lab.chart.temperature": ("Acceptance rate by temperature", "温度与接受率"),
    "lab.chart.text": ("Speed-up by kind of text", "各类文字的提速"),
    "lab.chart.rows": ("Time of one forward", "一次前向的时间"),
    "lab.table.rate": (
        "Tokens/s of all users; small: what repeats scatter between",
        "所有用户每秒的 token 数；小字：重复测量的波动范围",
    ),
    "lab.table.each": ("Tokens/s of one user", "每个用户每秒的 token 数"),
    "lab.table.length": (
        "Times as fast as plain decoding; small: what repeats scatter between",
        "是普通解码的几倍；小字：重复测量的波动范围",
    ),
    "lab.table.ttft": ("Until the first token", "到首个 token 为止"),
    "lab.table.k": (
        "Times as fast as plain decoding; small: what repeats scatter between",
        "是普通解码的几倍；小字：重复测量的波动范围",
    ),
    "lab.table.temperature": (
        "Acceptance rate and speed-up; small: what repeats scatter between",
        "接受率和提速；小字：重复测量的波动范围",
    ),
    "lab.table.text": (
        "Times as fast as plain decoding; small: what repeats scatter between",
        "是普通解码的几倍；小字：重复测量的波动范围",
    ),
    "lab.table.rows": ("Milliseconds of one forward", "一次前向的毫秒数"),
    "lab.axis.users": ("users at once", "同时的用户"),
    "lab.axis.tokens": ("tokens of the reply", "回答的 token 数"),
    "lab.axis.k": ("guesses a round (K)", "每轮猜几个（K）"),
    "lab.axis.temperature": ("temperature", "温度"),
    "lab.axis.text": ("text", "文字"),
    "lab.axis.rows": ("rows", "行数"),
    "lab.axis.speed": ("tokens/s", "token/秒"),
    "lab.axis.times": ("times as fast", "是普通的几倍"),
    "lab.axis.ms": ("ms", "毫秒"),
    "lab.axis.alpha": ("acceptance rate", "接受率"),
    "lab.col.gain": ("fixed K ÷ plain", "固定 K ÷ 普通"),
    "lab.col.whole": ("whole request", "整个请求"),
    "lab.col.between": ("between tokens", "token 之间"),
    "lab.col.change": ("difference", "相差"),
    "lab.col.speedup": ("speed-up", "提速"),
    "lab.col.each_row": ("ms a row", "每行毫秒"),
    "lab.col.request": ("whole request", "整个请求"),
}
