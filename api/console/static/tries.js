// A rule tried on history goes on while its page is left or loaded anew: this tab remembers which try
// it was, and the page shows it again.
"use strict";
(() => {
  const box = document.querySelector("[data-tries]");
  if (!box) return;
  const key = `headgate.try.${box.dataset.tries}`;

  function remember() {
    const shown = box.querySelector("[data-try]");
    if (!shown) return;
    try {
      if (shown.dataset.state === "cancelled") sessionStorage.removeItem(key);
      else sessionStorage.setItem(key, shown.dataset.try);
    } catch { /* full or forbidden: then it is found again nowhere */ }
  }
  function choose() {
    const choice = box.dataset.choice && box.querySelector(`[name=choice][value="${CSS.escape(box.dataset.choice)}"]`);
    if (!choice) return;
    choice.checked = true;
    delete box.dataset.choice;
  }
  document.addEventListener("htmx:afterSettle", () => { remember(); choose(); });
  function start() {
    let known = null;
    try { known = sessionStorage.getItem(key); } catch { /* as above */ }
    if (known) window.htmx.ajax("GET", `/rule-tries/${encodeURIComponent(known)}?again=1`, { target: "#try", swap: "innerHTML" });
  }
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
