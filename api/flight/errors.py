"""Errors as Flight has them: a status that drivers know, and the sentence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import flight

from api.services.quotas import QuotaUsedUp
from api.sql.runner import Failed, Limit
from api.sql.worker_line import Cancelled
from infra.errors import HeadgateError, Retryable, Usage

_log = logging.getLogger("headgate.api")
_STATUS = {
    flight.FlightUnauthenticatedError: "unauthenticated",
    flight.FlightUnauthorizedError: "unauthorized",
    flight.FlightUnavailableError: "unavailable",
    flight.FlightCancelledError: "cancelled",
    flight.FlightServerError: "refused",
}


def call_status(error: Exception | None) -> str:
    """What a call ended with, for `/metrics`; `refused`: a fault of the statement, `failed`: of
    ours."""
    return "ok" if error is None else _STATUS.get(type(error), "failed")


@contextmanager
def as_flight_errors() -> Iterator[None]:
    """Turn what is raised within into what Flight sends: no trace, no path of this machine."""
    # Flight's own errors alone: to any other pyarrow adds the trace, with paths of this machine.
    try:
        yield
    except flight.FlightError:
        raise
    except Cancelled as error:
        raise flight.FlightCancelledError(str(error)) from None
    except QuotaUsedUp as error:
        text = f"{error}; again in {error.retry_after} s"
        raise flight.FlightUnavailableError(text) from None
    except Retryable as error:
        raise flight.FlightUnavailableError(str(error)) from None
    except (Usage, Failed, Limit) as error:
        raise flight.FlightServerError(str(error)) from None
    except HeadgateError as error:
        raise flight.FlightInternalError(str(error)) from None
    except Exception:
        _log.exception("unforeseen, over Flight SQL")
        raise flight.FlightInternalError(
            "this is no fault of the statement; the log of the API says more"
        ) from None
