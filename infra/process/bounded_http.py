"""Connections that say too little: a request has to be there in full within some seconds.

The server waits as long as a client likes for the end of a header or a body; a few hundred such
connections, which cost their owner nothing, would leave no room for anybody else.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 512
REQUEST_SECONDS = 20.0
"""For header and body together, from the connection or the end of the answer before."""
_LOOK_SECONDS = 5.0


class BoundedHttp(H11Protocol):
    """One connection, which is closed when its next request does not come in full in time."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._look(self.loop.time())

    def _look(self, waiting_since: float) -> None:
        if self.transport.is_closing():
            return
        now = self.loop.time()
        cycle: Any = self.cycle  # None before the first request
        answering = cycle is not None and not cycle.response_complete and not cycle.more_body
        if answering:
            waiting_since = now
        elif now - waiting_since > REQUEST_SECONDS:
            # Not closed in good order: that would wait for a client that reads nothing.
            self.transport.abort()
            return
        self._timer: asyncio.TimerHandle = self.loop.call_later(
            _LOOK_SECONDS, self._look, waiting_since
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop looking."""
        self._timer.cancel()
        super().connection_lost(exc)
