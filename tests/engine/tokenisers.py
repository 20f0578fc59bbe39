"""Small real tokenisers of the three kinds, and chat templates, for tests. Nothing is read from anywhere."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from engine.text.chat_template import compile_template
from engine.text.tokenizer import Render

TEXTS = [
    "the quick brown fox jumps over the lazy dog; 你好，世界。 你好 吗？ 天气 很好",
    "def add(a, b):\n    return a + b\n\n    # indented 🙂 🙂 👩‍👩‍👧 🇫🇷",
    "<|im_start|> is what people type, <|im_end|> too; user assistant system",
]
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)
TRIMMING = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
NO_SYSTEM = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}[{{ m.content }}]{% endfor %}"
DROPS_SYSTEM = "{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}"


def renderer(template: str) -> Render:
    return compile_template(template, "m")


def byte_level() -> Tokenizer:
    """The GPT-2 kind; a vocabulary of 256 bytes, three control tokens, a few merges, and an ordinary added token."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=sorted(alphabet), special_tokens=list(CONTROL), show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.add_tokens([AddedToken("<think>", special=False), AddedToken("中…", special=False)])
    return backend


def byte_fallback(prepend_scheme: str | None = None) -> Tokenizer:
    """The Llama kind: characters with a space mark, bytes for the rest. None: the space comes from the normaliser."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += sorted({"\u2581", *"abcdefghijklmnopqrstuvwxyz<>/|_!?.,\n你好世界\ufffd"})
    merges = [("\u2581", "h"), ("\u2581h", "e"), ("l", "l"), ("\u2581", "\u2581"), ("\n", "h")]
    pieces += ["".join(pair) for pair in merges]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if prepend_scheme is None:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return backend


def word_piece() -> Tokenizer:
    """A kind that no byte table can stand for: how a token reads depends on its neighbours."""
    pieces = ["[UNK]", "[SEP]", "the", "quick", "##ly", "##er", "fox", "!", ",", "你", "好"]
    backend = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(["[SEP]"])
    return backend
