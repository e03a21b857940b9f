"""Views of the alerts: a filter kept under a name, for whoever kept it."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import QueryParams

from api.console.page import Page, console_router
from api.console.pages.alerts import AlertsAddress
from api.console.request import CheckedForm, Here, Signed
from api.services.console.saved_views import SavedViews

router = console_router()
PAGE = Page("alert-views", "Views", router)


@router.post("/alert-views")
def keep_shown_list(services: Here, session: Signed, form: CheckedForm) -> Response:
    """Keep what the list shows now."""
    given = (form.get("query") or [""])[0]
    # Only what the page understands: an address is opened by a click.
    asked = AlertsAddress.of(QueryParams(given)).but()
    query = urlencode(asked, doseq=True)
    name = (form.get("name") or [""])[0].strip()
    SavedViews(services.settings).keep_view(session.caller.name, name, query)
    return RedirectResponse(f"/alerts?{query}", 303)


@router.post("/alert-views/remove")
def forget_view(services: Here, session: Signed, form: CheckedForm) -> Response:
    """Forget a view; the list stays as it is."""
    query = urlencode(AlertsAddress.of(QueryParams((form.get("query") or [""])[0])).but(), True)
    name = (form.get("name") or [""])[0]
    SavedViews(services.settings).remove_view(session.caller.name, name)
    return RedirectResponse(f"/alerts?{query}", 303)
