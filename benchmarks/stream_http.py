"""HTTP PUT of a file to Starlette, hashed and written there: how artifacts are sent otherwise.

python -m benchmarks.stream_http serve PORT FOLDER
python -m benchmarks.stream_http put PORT FILE
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

BLOCK_BYTES: Final = 256 * 1024


def serve(port: int, folder: Path) -> None:
    """Take files until killed; answer with the sha256 of each."""

    async def put(request: Request) -> Response:
        digest = hashlib.sha256()
        with (folder / request.path_params["name"]).open("wb") as file:
            async for block in request.stream():
                digest.update(block)
                file.write(block)
        return PlainTextResponse(digest.hexdigest())

    application = Starlette(routes=[Route("/{name}", put, methods=["PUT"])])
    uvicorn.run(application, host="127.0.0.1", port=port, log_level="error")


def put(port: int, path: Path) -> None:
    """Send a file; print how long it took until the answer was there."""

    def blocks() -> Iterator[bytes]:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block

    with httpx.Client(timeout=120.0) as client:
        begun_s = time.monotonic()
        client.put(f"http://127.0.0.1:{port}/artifact", content=blocks()).raise_for_status()
        print(json.dumps({"seconds": time.monotonic() - begun_s}), flush=True)


if __name__ == "__main__":
    role, number, where = sys.argv[1:]
    (serve if role == "serve" else put)(int(number), Path(where))
