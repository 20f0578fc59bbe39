"""The words of the tab "Models", of what a check finds and of a pair in use; part of the one table in `ui.strings`."""

from __future__ import annotations

from engine import DIAGNOSTIC_TEXTS

MODELS: dict[str, tuple[str, str]] = {
    "tab.models": ("Models", "模型"),
    "models.title": ("Your own models", "换上你自己的模型"),
    "models.lead": (
        "A small model guesses, a big one checks. Load another pair here: the one in use stays until the new one is "
        "ready, and no reply is interrupted.",
        "小模型猜，大模型核对。这里可以换一对模型：新的准备好之前，原来的照常使用，正在写的回答也不会被打断。",
    ),
    "models.served": (
        "This page is served to others, so only the pairs in the table below and what lies in its models folder can be "
        "loaded.",
        "这个页面开放给了别人使用，所以只能加载下表里的模型，以及指定的模型文件夹里的模型。",
    ),
    "models.unanswered": (
        "The server does not answer: is it still running? Try again.",
        "服务器没有回应：它还在运行吗？请再试一次。",
    ),
    # the pair in use
    "models.now": ("In use now", "正在使用"),
    "models.none": ("No pair is in use yet.", "还没有模型可用。"),
    "pair.target": ("Target (big model)", "目标模型（大模型）"),
    "pair.weights": ("Weights", "权重"),
    "pair.kernel": ("Kernel", "计算内核"),
    "pair.device": ("Device", "设备"),
    "pair.device.cpu": ("{device}, {threads} {threads:thread|threads}", "{device}，{threads} 线程"),
    "pair.drafter": ("Drafter", "由谁来猜"),
    "pair.drafter.on": ("{name} on {device}", "{name}（{device}）"),
    "pair.choices": ("Can guess", "可选的猜法"),
    "pair.memory": ("Memory", "内存"),
    "pair.memory.is": (
        "{weights} of weights; {cache} more for a conversation of full length",
        "权重 {weights}；一个写满上下文的对话另占 {cache}",
    ),
    "pair.context": ("Context length", "上下文长度"),
    "pair.context.is": ("{count} tokens, prompt and reply together", "{count} 个 token，提示词和回答合计"),
    "pair.exact": ("Bit-exact", "逐位一致"),
    "pair.exact.yes": (
        "Yes: measured here, a token's numbers are the same alone and among guesses, to the last bit.",
        "是：在这台机器上测过，一个 token 单独算、和猜测一起算，结果一位不差。",
    ),
    "pair.exact.no.device": (
        "Not proven: on {device} a pass over another number of tokens may end in other last bits. The distribution is the same.",
        "未证明：在 {device} 上，一次算的 token 个数不同，末几位可能不同。概率分布是一样的。",
    ),
    "pair.exact.no.transformers": (
        "Not proven: its layers run on transformers, which promises no equal last bits. The distribution is the same.",
        "未证明：它的各层由 transformers 计算，不保证末几位相同。概率分布是一样的。",
    ),
    "pair.exact.no.kernel": (
        "Not proven: this kernel was not found to give equal last bits here. The distribution is the same.",
        "未证明：在这台机器上，没有测得这个内核的末几位总是相同。概率分布是一样的。",
    ),
    "pair.exact.no": ("Not proven. The distribution is the same.", "未证明。概率分布是一样的。"),
    # another pair
    "models.other": ("Load another pair", "换一对模型"),
    "models.recent": ("Used in this browser before", "这个浏览器里用过的"),
    "models.target": ("Target (big model)", "目标模型（大模型）"),
    "models.target.help": (
        "A pair of the table, a Hugging Face id such as Qwen/Qwen3-1.7B, a folder with safetensors, or a .gguf file.",
        "下表里的模型、Hugging Face 的名字（例如 Qwen/Qwen3-1.7B）、放着 safetensors 的文件夹，或者 .gguf 文件。",
    ),
    "models.target.help.served": (
        "A pair of the table, or a name from the models folder.",
        "下表里的模型，或者模型文件夹里的名字。",
    ),
    "models.drafter": ("Drafter", "由谁来猜"),
    "models.drafter.help": (
        "auto: the target's trained head where it has one, and n-gram. ngram, none, or the name of a smaller model or a head.",
        "auto：有训练好的草稿头就用它，再加 n-gram。也可以写 ngram、none，或者更小的模型、草稿头的名字。",
    ),
    "models.quant": ("Target's weights", "大模型的权重"),
    "models.drafter_quant": ("Drafter's weights", "草稿模型的权重"),
    "models.device": ("Device", "设备"),
    "models.drafter_device": ("Drafter's device", "草稿模型的设备"),
    "models.compute": ("Quantised layers multiply in", "量化层用什么格式相乘"),
    "models.more": ("More settings", "更多设置"),
    "models.option.auto": ("auto", "自动"),
    "models.option.gguf": ("gguf, the file's own numbers", "gguf，文件自己的数值"),
    "models.option.nf4": ("nf4, 4 bits", "nf4，4 位"),
    "models.option.int8": ("int8, 8 bits", "int8，8 位"),
    "models.option.bf16": ("bf16, 16 bits", "bf16，16 位"),
    "models.option.fp16": ("fp16, 16 bits", "fp16，16 位"),
    "models.option.fp32": ("fp32, 32 bits", "fp32，32 位"),
    "models.safe": (
        "Only safetensors and GGUF files are opened, and code that comes with a model is never run.",
        "只打开 safetensors 和 GGUF 文件，绝不运行模型附带的代码。",
    ),
    "models.check": ("Check", "检查"),
    "models.load": ("Load", "加载"),
    "models.cancel": ("Cancel", "取消"),
    "models.close": ("Close", "关闭"),
    # what a check found
    "models.checking": ("Reading the headers of both models", "正在读两个模型的文件头"),
    "models.checking.only": (
        "Only the headers are read, no weights; nothing changes yet.",
        "只读文件头，不读权重；现在什么都不会变。",
    ),
    "models.verdict.fits": ("Fits", "可以用"),
    "models.verdict.slow": ("Will be slow", "能用，但会慢"),
    "models.verdict.cannot": ("Cannot be loaded", "不能加载"),
    "models.level.fits": ("note", "说明"),
    "models.level.slow": ("slow", "会慢"),
    "models.level.cannot": ("no", "不行"),
    "models.try": ("Try:", "试试："),
    "models.parameters": ("{count} parameters", "{count} 参数"),
    "models.reads": ("reads {context} tokens", "最多读 {context} 个 token"),
    "models.drafting.same": (
        "The drafter's tokens are the target's own.",
        "草稿模型和大模型的 token 完全相同。",
    ),
    "models.drafting.reencoded": (
        "The drafter's text is cut again into the target's tokens.",
        "草稿模型写的文字会重新切成大模型的 token。",
    ),
    "models.drafting.head": ("A trained head guesses.", "由训练好的草稿头来猜。"),
    "models.drafting.ngram": ("N-gram guesses, from the text itself.", "由 n-gram 从前文里猜。"),
    "models.drafting.none": ("Nobody guesses: plain decoding.", "不猜：普通解码。"),
    "models.needs": ("{needs} needed, {free} free", "需要 {needs}，空闲 {free}"),
    "models.needs.alone": ("{needs} needed; how much is free is not known", "需要 {needs}；空闲多少不清楚"),
    "models.part.target": ("target", "大模型"),
    "models.part.drafter": ("drafter", "草稿模型"),
    "models.part.cache": ("a conversation's cache", "对话的缓存"),
    "models.part.features": ("features for the head", "给草稿头的特征"),
    "models.part.working": ("working memory", "计算时的临时内存"),
    "models.part.loading": ("only while loading", "只在加载时"),
    "models.part.free": ("left over", "剩余"),
    "models.refused": (
        "Not loaded: it cannot run here. The pair in use is untouched.",
        "没有加载：在这里运行不了。正在用的模型没有动。",
    ),
    # a change
    "models.changing": ("Changing to {name}", "正在换成 {name}"),
    "models.phase.checking": ("Checking", "正在检查"),
    "models.phase.loading": ("Loading", "正在加载"),
    "models.phase.waiting": (
        "Loaded. Waiting for {count} {count:reply that is|replies that are} being written",
        "加载好了，等正在写的 {count} 个回答写完",
    ),
    "models.phase.waiting.none": ("Loaded. Taking over", "加载好了，马上换上"),
    "models.phase.starting": ("Starting", "正在启动"),
    "models.so_far": ("{seconds} s so far", "已用 {seconds} 秒"),
    "models.waits": (
        "{count} {count:reply is|replies are} being written now: the change waits for {count:its|their} end.",
        "现在有 {count} 个回答正在写：写完之后才会换。",
    ),
    "models.meanwhile": ("Until then the pair in use goes on answering.", "在那之前，原来的模型照常回答。"),
    "models.instead": (
        "The pair from before had to make room; it is loaded again if this one fails. Messages wait.",
        "原来的模型先让出了内存；如果新的没成功，会再把它装回来。这段时间里消息会排队。",
    ),
    "models.done": (
        "Loaded in {seconds} s: {name} answers from here on.",
        "用了 {seconds} 秒换好，从现在起由 {name} 回答。",
    ),
    "models.failed": (
        "{message} The pair from before is still in use.",
        "{message} 仍在用原来的模型。",
    ),
    "models.cancelled": ("Cancelled. The pair from before is still in use.", "已取消，仍在用原来的模型。"),
    "models.busy": (
        "Another change is under way: wait for its end, or cancel it.",
        "已经有一个更换在进行：等它结束，或者先取消它。",
    ),
    "models.refusal": ("{message} Nothing was changed.", "{message} 什么都没有变。"),
    "models.bug": (
        "Something went wrong inside Greenlight; its terminal has the details. The pair in use is untouched.",
        "Greenlight 内部出错了，详情在终端里。正在用的模型没有动。",
    ),
    "models.empty": ("Name a target first.", "先写上大模型的名字。"),
    "models.forbidden": (
        "“{name}” may not be loaded from here: choose a pair of the table, or a name from the models folder.",
        "这里不能加载“{name}”：请从下表里选，或者用模型文件夹里的名字。",
    ),
    "models.announced": ("The models were changed: {name} answers from here on.", "模型换了：从现在起由 {name} 回答。"),
    "models.between": ("From here on: {name}", "从这里起：{name}"),
    "models.and": ("{target} (guesses by {drafter})", "{target}（{drafter} 来猜）"),
    # pairs that are known to go together
    "models.presets": ("Pairs that go together", "搭配好的组合"),
    "models.presets.lead": (
        "“Use” fills in the form above. What is not on this machine yet is fetched from Hugging Face when it is loaded.",
        "点“选用”会填好上面的表。这台机器上还没有的，加载时从 Hugging Face 下载。",
    ),
    "models.col.pair": ("Pair", "组合"),
    "models.col.needs": ("Needs", "需要"),
    "models.col.free": ("Free here", "这里空闲"),
    "models.use": ("Use", "选用"),
    "models.use.this": ("Use {name}", "选用 {name}"),
    "models.chinese": ("speaks Chinese", "会中文"),
    "models.free.memory": ("{free} of memory", "内存 {free}"),
    "models.free.gpu": ("{free} on the GPU", "显卡 {free}"),
    "models.free.no_gpu": ("no CUDA device", "没有 CUDA 显卡"),
    "models.free.unknown": ("not known", "不清楚"),
    "models.short": ("too little", "不够"),
    "pair.embedded": ("Built in", "内置"),
    "pair.small": ("Small, for a CPU", "小，适合 CPU"),
    "pair.small-zh": ("Small, Chinese", "小，会中文"),
    "pair.gpu8": ("8 GB GPU", "8 GB 显卡"),
    "pair.gpu24": ("24 GB GPU", "24 GB 显卡"),
    "pair.eagle3": ("With its EAGLE-3 head", "配 EAGLE-3 草稿头"),
}

CHINESE: dict[str, tuple[str, str]] = {
    "not_found": (
        "没有 {name} 这个模型。",
        "检查一下写法：文件夹、.gguf 文件、owner/model 这样的 Hugging Face 名字、表里组合的名字，或者 embedded。",
    ),
    "not_a_model": ("{name} 是别的文件。", "填 .gguf 文件，或者放着 safetensors 的模型文件夹。"),
    "offline": ("这台机器上没有 {name}，又不允许联网。", "启动时不加 --offline，或者选已经有的模型。"),
    "no_network": ("这台机器上没有 {name}，又连不上 Hugging Face。", "连上网络再检查一次，看看名字有没有写错，或者选已经有的模型。"),
    "gated": ("{name} 要先接受它的许可协议。", "在它的 Hugging Face 页面上接受，设置 HF_TOKEN，再重新启动。"),
    "download": ("要先下载 {name}：{size}。", ""),
    "disk_short": (
        "{folder} 只剩 {free}，而要写入 {needs}。",
        "腾出空间，或者把 GREENLIGHT_CACHE（Hugging Face 的模型用 HF_HOME）设成更大的文件夹。",
    ),
    "no_config": ("{name} 里没有 config.json。", "换成放着 safetensors 的模型文件夹。"),
    "no_weights": ("{name} 里没有 *.safetensors 权重。", "换成有 safetensors 的版本，或者 GGUF 文件。"),
    "pickle_only": (
        "{name} 的权重是 pickle 文件，里面可能藏着会自己运行的程序，所以不打开。",
        "换成有 safetensors 的版本，或者 GGUF 文件。",
    ),
    "no_tokenizer": ("{name} 没有分词器。", "重新下载，连同 tokenizer.json 或 tokenizer.model。"),
    "damaged": ("{name} 读不出来：{reason}。", "重新下载它的文件。"),
    "truncated": ("{name} 不完整：{file} 的权重没写完就断了。", "重新下载这个文件。"),
    "unsupported_type": (
        "{name} 的权重是 {type}，这里读不了。",
        "换成 Q4_0、Q4_1、Q8_0、Q4_K、Q5_K、Q6_K、F16、BF16 或 F32 的 GGUF，或者 safetensors。",
    ),
    "gguf_refused": ("这个 GGUF 文件读不了：{reason}。", "换一个文件，或者用 safetensors 的模型。"),
    "prequantised": (
        "{name} 的权重是用 {method} 量化的，这里读不了。",
        "换成原版模型，在这里量化：选 nf4 或 int8。",
    ),
    "unknown_architecture": (
        "{name} 属于 {kind} 一类，这里运行不了。",
        "换成 Llama、Qwen、Mistral、Gemma 或 SmolLM 一类的模型。",
    ),
    "stateful_cache": (
        "{name}（{kind}）带着一个状态，猜错之后退不回去。",
        "换成每层都是注意力的模型，例如 Llama、Qwen、Mistral、Gemma 或 SmolLM 一类。",
    ),
    "attention_sinks": ("{name}（{kind}）用到 attention sink，这里运行不了。", "换成别的一类模型。"),
    "encoder_decoder": (
        "{name}（{kind}）一半负责读、一半负责写，而核对猜测需要一整个模型。",
        "换成只有解码器的模型，例如 Llama、Qwen、Mistral、Gemma 或 SmolLM 一类。",
    ),
    "head_alone": ("{name} 是草稿头，自己写不了东西。", "把它填在“由谁来猜”，大模型填它所配的那个。"),
    "no_device": ("这里没有 PyTorch 能用的 {device}。", "选自动，或者 {usable}。"),
    "no_native": ("本地编译的内核不能在 {device} 上运行 {name}。", "启动时不加 --kernel native。"),
    "quant_refused": ("{name} 在 {device} 上不能存成 {quant}。", "选自动，或者 {usable}。"),
    "bitsandbytes": ("{quant} 需要 bitsandbytes 这个包，这里没有。", "安装它，或者选自动。"),
    "memory_short": (
        "这一对大约需要 {needs}，而{where}只剩 {free}。",
        "换小一点的组合，用更紧的量化（nf4），或者关掉别的程序。",
    ),
    "memory_beside": (
        "这一对大约需要 {needs}，而原来的模型还在的时候，{where}只剩 {free}。",
        "可以加载：原来的模型会先让出内存，这期间消息要排队。",
    ),
    "memory_tight": (
        "这一对大约需要 {needs}，{where}还剩 {free}：很紧张。",
        "关掉别的程序，或者换小一点的组合。",
    ),
    "memory_unknown": ("查不出{where}空闲多少；这一对大约需要 {needs}。", ""),
    "gpu_better": (
        "{name} 对这块处理器来说太大：不猜的话每秒约 {rate} 个 token。",
        "换成参数不超过 {parameters} 的模型，用更紧的量化，或者换有显卡的机器。",
    ),
    "nf4_on_cpu": (
        "在这块处理器上，NF4 权重每次相乘都要先展开：省内存，不省时间。",
        "内存够的话选自动。",
    ),
    "dequantised": ("{name} 的数值（{types}）不能直接相乘：展开后占 {mib}，文件是 {file_mib}。", ""),
    "own_grid": ("{name} 直接用 GGUF 自己的数值（{types}）运行。", ""),
    "requantised": (
        "{quant} 会舍入 {name} 的权重：回答可能略差，猜测仍然无损。",
        "内存够的话选自动。",
    ),
    "requantised_again": (
        "{quant} 会把 {name} 的权重再舍入一次，小模型的质量会明显下降。",
        "想要最好的回答，就选自动。",
    ),
    "context_short": ("{name} 最多读 {context} 个 token，提示词和回答合计。", ""),
    "no_chat_template": (
        "{name} 没有对话模板：它看到的对话就是一行行 User: 和 Assistant:。",
        "想聊天，就选它的 instruct 或 chat 版本。",
    ),
    "tokenisers_differ": (
        "{drafter} 和 {target} 切分文字的方式不同：猜测先写成文字，再重新切分。",
        "用同一家族的草稿模型更省；ngram 和任何模型都能配。",
    ),
    "tokenisers_unread": ("{drafter} 和 {target} 的分词器是否相同，加载时才知道。", ""),
    "tokenisers_cut_otherwise": (
        "{drafter} 和 {target} 的 token 相同，但有些文字切分得不一样：被否掉的猜测会略多。",
        "",
    ),
    "padded_vocabulary": (
        "{target} 和 {drafter} 共有 {size} 个 token；权重分别有 {target_rows} 行和 {drafter_rows} 行，多出来的是填充，不会写出来。",
        "",
    ),
    "head_of_another_target": (
        "草稿头 {head} 是为 {made_for} 训练的：给 {target} 猜，可能没什么用。",
        "选为这个大模型训练的草稿头。",
    ),
    "head_size": (
        "草稿头 {head} 和 {target} 对不上：它的 {what} 是 {theirs}，大模型的是 {ours}。",
        "选为这个大模型训练的草稿头，或者 ngram。",
    ),
    "drafter_larger": (
        "{drafter} 不比 {target} 快，猜测花的时间比省下的还多。",
        "草稿模型选大模型的十分之一大小，或者用 ngram。",
    ),
    "drafter_context_shorter": ("{drafter} 能读 {short} 个 token，{target} 能读 {long} 个：超出之后不再由它来猜。", ""),
}  # fmt: skip
"""What a check finds, and what to try, by the code of the finding; the English is the engine's own."""

FOUND: dict[str, tuple[str, str]] = {
    f"check.{code}{part}": (english, chinese)
    for code, words in CHINESE.items()
    if (sentence := DIAGNOSTIC_TEXTS.get(code))
    for part, english, chinese in zip(("", ".try"), (sentence.message, sentence.advice), words, strict=True)
    if english and chinese
}
FOUND |= {
    "check.word.memory": ("memory", "内存"),
    "check.word.the GPU's memory": ("the GPU's memory", "显存"),
    "check.word.hidden size": ("hidden size", "隐藏层宽度"),
    "check.word.vocabulary": ("vocabulary", "词表大小"),
    "check.word.last layer": ("last layer", "最后一层"),
}
"""Values of findings that are words."""

MODELS |= FOUND
