"""Starts Greenlight: command line -> engine -> page -> server. Also what a Hugging Face Space runs."""

from __future__ import annotations

import argparse
import errno
import ipaddress
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from engine import (
    BOUNDS,
    COMPUTE,
    DEVICES,
    DRAFTER_WORDS,
    EMBEDDED,
    KERNELS,
    MAX_K,
    MODEL_PRESETS,
    QUANTS,
    Bounds,
    DecodingParams,
    EngineConfig,
    InvalidParams,
    __version__,
    parse_k,
)

if TYPE_CHECKING:
    import gradio as gr

    from engine import Engine, Status

DEFAULT_PORT = 7860
PORTS = Bounds(1, 65535, whole=True)


class CannotStart(Exception):
    """Its text is one sentence that says what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return run(parse(sys.argv[1:] if argv is None else argv))
    except (CannotStart, InvalidParams) as problem:
        print(f"Greenlight cannot start: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence, not argparse's block of usage."""
        self.exit(2, f"Greenlight cannot start: {message}; see --help.\n")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="app.py", description="A chat page that shows speculative decoding at work, on your own machine."
    )
    add, usual = parser.add_argument, EngineConfig()
    add("--host", default=None, help="address to listen on (default 127.0.0.1: this machine only; 0.0.0.0 on a Space)")
    add("--port", type=_whole(PORTS), default=DEFAULT_PORT, help="port to listen on (default %(default)s)")
    add("--share", action="store_true", help="also publish the page under a public gradio.live address")
    add(
        "--queue-size",
        type=_whole(BOUNDS["max_waiting"]),
        default=usual.max_waiting,
        help="how many requests may wait (default %(default)s)",
    )
    add(
        "--max-new-tokens",
        type=_whole(BOUNDS["max_new_tokens"]),
        default=usual.max_new_tokens,
        help="longest reply allowed (default %(default)s)",
    )
    add(
        "--target",
        default=EMBEDDED,
        help="the model: embedded (default), a folder with safetensors, a .gguf file, a Hugging Face id, or the name "
        "of a pair: " + ", ".join(pair.name for pair in MODEL_PRESETS if pair.name != "embedded"),
    )
    add(
        "--drafter",
        default="auto",
        help="who guesses: auto (default: the model's trained head, where there is one, and n-gram), ngram, none, or "
        "the folder, file or name of a head or of a smaller model",
    )
    add(
        "--k",
        type=_k,
        default=None,
        help=f"guesses a round at first: auto (default: by what pays), or 0 to {MAX_K}; 0 is plain decoding",
    )
    add("--device", choices=DEVICES, default="auto", help="where the model runs (default auto)")
    add(
        "--drafter-device",
        choices=DEVICES,
        default="auto",
        help="where a drafter model runs (default: beside the model)",
    )
    add(
        "--threads",
        type=_whole(BOUNDS["threads"]),
        default=None,
        help="CPU threads (default: as many as this process may use)",
    )
    add(
        "--kernel",
        choices=KERNELS,
        default="auto",
        help="arithmetic: native (compiled here), torch, or auto (default)",
    )
    add(
        "--quant",
        choices=QUANTS,
        default="auto",
        help="how weights are kept: gguf (a GGUF's own numbers), bf16, fp32, nf4, int8; auto (default) is "
        "the quickest that rounds nothing again",
    )
    add("--drafter-quant", choices=QUANTS, default="auto", help="how a drafter model's weights are kept (default auto)")
    add("--compute", choices=COMPUTE, default="auto", help="what nf4 and int8 layers multiply in (default auto)")
    add(
        "--models-folder",
        default=None,
        help="where visitors' models are: with a page for others, only the pairs' and this folder's models can be "
        "loaded in it",
    )
    add("--lang", choices=("en", "zh"), default=None, help="language of the page (default: the browser's)")
    add("--offline", action="store_true", help="never use the network; the model must be there already")
    add("--version", action="version", version=f"Greenlight {__version__}")
    return parser.parse_args(argv)


def _whole(bounds: Bounds) -> Callable[[str], int]:
    low, high = bounds.low, bounds.high

    def number(written: str) -> int:
        if not written.isdecimal() or not low <= int(written) <= high:
            raise argparse.ArgumentTypeError(f"must be a whole number from {low} to {high}, not {written!r}")
        return int(written)

    return number


def _k(written: str) -> int | None:
    try:
        return DecodingParams(num_speculative_tokens=parse_k(written)).num_speculative_tokens
    except InvalidParams:
        raise argparse.ArgumentTypeError(f"must be auto or a whole number from 0 to {MAX_K}, not {written!r}") from None


def run(args: argparse.Namespace) -> int:
    on_space = bool(os.environ.get("SPACE_ID"))
    host = args.host or ("0.0.0.0" if on_space else "127.0.0.1")
    config = EngineConfig(
        target=args.target, drafter=args.drafter, device=args.device, threads=args.threads, offline=args.offline,
        max_new_tokens=args.max_new_tokens, max_waiting=args.queue_size, kernel=args.kernel,
        quant=args.quant, drafter_device=args.drafter_device, drafter_quant=args.drafter_quant, compute=args.compute,
    )  # fmt: skip
    prepare_environment()
    check_port(host, args.port)
    check_folders(args.models_folder)

    print("Starting Greenlight ...", file=sys.stderr, flush=True)
    if not on_space:
        check_pair(config)
    # Only now the slow imports: a mistake on the command line is answered at once.
    from engine import Engine

    engine = Engine(config)  # loads in its own thread while Gradio is imported and the page goes up
    try:
        app, url = serve(engine, args, host)
        try:
            status = wait_loaded(engine)
            if status.message and not on_space:
                raise CannotStart(status.message)
            print(f"Greenlight is ready at {url}" if not status.message else status.message, flush=True)
            wait_for_end()
        finally:
            app.close(verbose=False)
    finally:
        engine.close()
    return 0


def check_pair(config: EngineConfig) -> None:
    """Raises CannotStart where the headers of an own model tell already that it cannot be loaded; that takes a
    second."""
    if config.target == EMBEDDED and config.drafter in DRAFTER_WORDS:
        return
    from engine import load_refusal

    if reason := load_refusal(config):
        raise CannotStart(reason)


def prepare_environment() -> None:
    """Settings that libraries read when they are imported."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    # Gradio asks its own server whether it is up. A proxy must not stand between the two.
    no_proxy = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    hosts = [host for host in no_proxy.split(",") if host.strip()]
    hosts += [host for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0") if host not in hosts]
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join(hosts)


def check_port(host: str, port: int) -> None:
    """Raises CannotStart where the port is taken or the address is not this machine's."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            if os.name != "nt":  # there it would allow two servers on one port
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except socket.gaierror:
        raise CannotStart(f"{host} is not an address; use --host 127.0.0.1 for this machine only.") from None
    except PermissionError:
        raise CannotStart(f"port {port} is reserved by the system; choose one above 1023 with --port.") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CannotStart(
                f"port {port} is in use by another program; choose another, for example --port {port % 65535 + 1}."
            ) from None
        raise CannotStart(f"it is not possible to listen on {host} ({error.strerror}); try --host 127.0.0.1.") from None


def check_folders(models: str | None = None) -> None:
    """Gradio keeps uploads in a temporary folder and fails deep inside without one. models: the models folder, if
    any."""
    if models is not None and not os.path.isdir(os.path.expanduser(models)):
        raise CannotStart(f"there is no folder {models}: make it, or leave out --models-folder.")
    folder = os.environ.get("GRADIO_TEMP_DIR")
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        where = f"GRADIO_TEMP_DIR ({folder})" if folder else "the temporary folder"
        raise CannotStart(
            f"{where} cannot be written to; set GRADIO_TEMP_DIR and TMPDIR to a folder that can."
        ) from None


def serve(engine: Engine, args: argparse.Namespace, host: str) -> tuple[gr.Blocks, str]:
    """Put the page up. Returns the running app and its address."""
    from ui.controls import Options
    from ui.layout import build_app, launch

    options = Options(
        args.lang,
        args.drafter,
        args.k,
        args.max_new_tokens,
        args.queue_size,
        args.models_folder,
        is_served(host, args.share),
    )
    app = build_app(engine, options)
    try:
        _, url, shared = launch(
            app, options, server_name=host, server_port=args.port, share=args.share, prevent_thread_lock=True
        )
    except (OSError, ValueError) as error:
        raise CannotStart(f"the page could not be served on {host}:{args.port} ({error}).") from error
    return app, shared or url


def is_served(host: str, share: bool) -> bool:
    """Whether others than who started the app may reach its page."""
    if share or os.environ.get("SPACE_ID"):
        return True
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def wait_loaded(engine: Engine) -> Status:
    """Until the model is ready or has failed; shows on the terminal how far it is."""
    from engine import State

    terminal, shown = sys.stderr.isatty(), ""
    while (status := engine.wait_ready(0.25)).state is State.LOADING:
        share = "" if status.fraction is None or not terminal else f" {status.fraction:.0%}"
        line = f"Loading the model: {status.phase}{share}"
        if line != shown:  # one line that is written over, or in a log a line for each phase
            print(f"\r\x1b[K{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)
        shown = line
    if shown and terminal:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return status


def wait_for_end() -> None:
    """Until Ctrl+C or a polite kill."""
    while True:  # in slices, because on Windows a wait without end cannot be interrupted
        time.sleep(1.0)


def leave(*_: object) -> None:
    """A polite kill is like Ctrl+C: replies end, the port is given back."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, leave)
    exit_status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_status)  # a load in progress cannot be interrupted, and must not hold the exit
