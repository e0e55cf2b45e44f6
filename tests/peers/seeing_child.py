"""Run as a file in the place of `rx_sampler.local`'s child process: that one, for a model that has eyes.

`TINY_CHILD` is the child that is meant, `TINY_MMPROJ` the GGUF with the vision tower.
"""

from __future__ import annotations

import os
import runpy
from importlib import import_module
from typing import Any

if __name__ == "__main__":
    llama: Any = import_module("xllamacpp")
    serve = llama.Server

    def serve_with_eyes(params: Any) -> Any:
        params.mmproj.path = os.environ["TINY_MMPROJ"]
        return serve(params)

    llama.Server = serve_with_eyes
    runpy.run_path(os.environ["TINY_CHILD"], run_name="__main__")
