// Keys, times, copying, and what of a page renews itself. Pages work without it, but for these.
"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const typing = (target) => target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");

  // -- what takes long -----------------------------------------------------------------------

  let slow = 0;
  const sent = new Map();
  let ticking = 0;
  function begin() {
    clearTimeout(slow);
    slow = setTimeout(() => { root.dataset.going = ""; }, 350);
  }
  function end() {
    clearTimeout(slow);
    clearInterval(ticking);
    delete root.dataset.going;
    all("[data-long]").forEach((line) => { line.hidden = true; });
  }
  // On the window: who handles a click or a form itself has said so by then.
  addEventListener("submit", (event) => {
    if (event.defaultPrevented || event.target.method === "dialog") return;
    // Clicked twice fast, what the first made is refused to the second, and that alone is told.
    if (event.target.method === "post") {
      const since = Date.now() - (sent.get(event.target) ?? 0);
      if (since < 10000) {
        event.preventDefault();
        if (since > 1000) notice("It was sent already; its answer is awaited.");
        return;
      }
      sent.set(event.target, Date.now());
    }
    begin();
    const line = event.target.querySelector("[data-long]");
    const asked = Date.now();
    clearInterval(ticking);
    if (line) ticking = setInterval(() => {
      line.hidden = false;
      line.querySelector("[data-long-seconds]").textContent = `${Math.round((Date.now() - asked) / 1000)} s`;
    }, 1000);
  });
  addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    const plain = !event.defaultPrevented && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.button;
    // What is saved as a file leaves the page where it is.
    const leaves = link && link.origin === location.origin && !link.hasAttribute("download") && !link.target && !/\.(csv|ndjson|arrows|parquet)$|\/file\//.test(link.pathname) && !link.getAttribute("href").startsWith("#");
    if (plain && leaves) begin();
  });
  addEventListener("pageshow", () => { sent.clear(); end(); });
  addEventListener("pagehide", end);
  document.addEventListener("htmx:beforeRequest", (event) => { if (!event.detail.elt.matches("[data-live]")) begin(); });
  document.addEventListener("htmx:afterRequest", (event) => { if (!event.detail.elt.matches("[data-live]")) end(); });

  // -- times ---------------------------------------------------------------------------------

  const two = (n) => String(n).padStart(2, "0");
  function exact(date, local) {
    const part = (name) => (local ? date[`get${name}`]() : date[`getUTC${name}`]());
    const day = `${part("FullYear")}-${two(part("Month") + 1)}-${two(part("Date"))}`;
    const clock = `${two(part("Hours"))}:${two(part("Minutes"))}:${two(part("Seconds"))}`;
    return `${day} ${clock}${local ? "" : " UTC"}`;
  }
  function relative(date, now) {
    const seconds = (now - date) / 1000;
    const size = Math.abs(seconds);
    if (size > 2592000) return exact(date, root.dataset.zone === "local").slice(0, 10);
    const text = size < 60 ? `${Math.round(size)} s` : size < 5400 ? `${Math.round(size / 60)} min`
      : size < 129600 ? `${Math.round(size / 3600)} h` : `${Math.round(size / 86400)} d`;
    return seconds >= 0 ? `${text} ago` : `in ${text}`;
  }
  function showTimes(from = document) {
    const local = root.dataset.zone === "local";
    const now = Date.now();
    for (const element of all("time[datetime]", from)) {
      const date = new Date(element.dateTime);
      if (Number.isNaN(date.valueOf())) continue;
      const text = "relative" in element.dataset ? relative(date, now) : exact(date, local);
      if (element.textContent !== text) element.textContent = text;
      element.title = `${exact(date, false)}\n${exact(date, true)} local\n${relative(date, now)}`;
    }
    for (const name of all("[data-zone-name]")) name.textContent = local ? "Local" : "UTC";
  }

  // -- what the reader chose -----------------------------------------------------------------

  function remember(name, value) {
    root.dataset[name] = value;
    document.cookie = `headgate_${name}=${value}; path=/; max-age=31536000; samesite=strict`;
    showTimes();
    document.dispatchEvent(new CustomEvent("headgate:look"));
  }
  function dark() {
    const { theme } = root.dataset;
    return theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  }
  const switches = {
    theme: () => remember("theme", dark() ? "light" : "dark"),
    zone: () => remember("zone", root.dataset.zone === "utc" ? "local" : "utc"),
  };

  // -- notices -------------------------------------------------------------------------------

  // One that stays can be dismissed; another goes by itself.
  function notice(text, bad = false, where = null, stays = Boolean(where)) {
    const box = document.createElement("div");
    box.className = bad ? "notice bad" : "notice";
    box.setAttribute("role", bad ? "alert" : "status");
    const words = document.createElement("span");
    words.textContent = text;
    box.append(words);
    (where ?? document.getElementById("notices"))?.prepend(box);
    if (stays) box.append(dismissal());
    else setTimeout(() => box.remove(), bad ? 12000 : 4000);
    return box;
  }
  function dismissal() {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "ghost small";
    button.dataset.dismiss = "";
    button.setAttribute("aria-label", "Dismiss");
    button.textContent = "×";
    return button;
  }
  window.headgateNotice = notice;  // for typed.js
  async function copy(button) {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      const label = button.querySelector("span");
      const before = label.textContent;
      label.textContent = "Copied";
      setTimeout(() => { label.textContent = before; }, 1500);
    } catch {
      notice(button.dataset.copy);
    }
  }

  // -- lists ---------------------------------------------------------------------------------

  const rows = () => all("[data-row]");
  const here = () => document.querySelector("[data-row].here");
  function goTo(row) {
    if (!row) return;
    here()?.classList.remove("here");
    row.classList.add("here");
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }
  function step(by) {
    const known = rows();
    const place = known.indexOf(here());
    goTo(known[place < 0 ? 0 : Math.min(known.length - 1, Math.max(0, place + by))]);
  }
  const picked = () => all("[data-pick]:checked");
  function showPicked() {
    const bar = document.querySelector("[data-bulk]");
    if (!bar) return;
    const number = picked().length;
    bar.hidden = number === 0;
    const count = bar.querySelector("[data-bulk-count]");
    if (count) count.textContent = number;
  }
  const current = () => document.querySelector("#beside[data-alert]")?.dataset.alert
    || document.querySelector("[data-alert-page]")?.dataset.alertPage || here()?.dataset.row;

  // A rule is drafted from the events that are chosen; the oldest says where to look for them.
  function ruleFrom() {
    const chosen = picked();
    if (!chosen.length || !document.querySelector("[data-rule-from]")) return;
    const query = new URLSearchParams(chosen.map((box) => ["event", box.value]));
    query.set("since", chosen.map((box) => box.dataset.time).sort()[0]);
    location.href = `/rule-editor?${query}`;
  }

  let askedFrom = null;
  function ask(url) {
    const box = document.getElementById("act");
    if (!box || !window.htmx) return;
    window.headgateAsked = url;
    askedFrom = document.activeElement;
    window.htmx.ajax("GET", url, { target: "#act", swap: "innerHTML" });
  }
  function act(name) {
    const ids = picked().map((box) => box.value);
    const alone = current();
    const chosen = ids.length ? ids : alone ? [alone] : [];
    if (!chosen.length) return;
    const button = document.querySelector(`[data-act="${name}"]`);
    if (!button) return;
    if (button.dataset.ask) ask(`${button.dataset.url}?${chosen.map((id) => `id=${encodeURIComponent(id)}`).join("&")}`);
    else window.htmx.ajax("POST", button.dataset.url, { target: "#act", swap: "innerHTML", values: { id: chosen } });
  }

  // -- the alert that is open ----------------------------------------------------------------

  const opened = () => document.querySelector("[data-revision]");
  // In place: the list keeps its filter, its scroll and its row.
  function closeBeside() {
    const beside = document.getElementById("beside");
    const row = beside && document.querySelector(`[data-row="${CSS.escape(beside.dataset.alert)}"]`);
    if (!beside) return;
    const empty = document.createElement("aside");
    Object.assign(empty, { className: "beside", id: "beside", ariaLabel: "Alert" });
    beside.replaceWith(empty);
    document.querySelector(".desk")?.classList.remove("beside-open");
    all("[data-row].opened").forEach((each) => each.classList.remove("opened"));
    const url = new URL(location.href);
    url.searchParams.delete("open");
    history.pushState({ htmx: true }, "", url);
    goTo(row);
  }
  // Who reads or writes about an alert must not miss that it is another one now.
  function revised(event) {
    const shown = opened();
    let came;
    try { came = JSON.parse(event.data); } catch { return; }
    if (!shown || (shown.dataset.alert || shown.dataset.alertPage) !== came.alert_id || came.revision <= Number(shown.dataset.revision)) return;
    const dialog = document.querySelector("dialog[open] form");
    const writes = [...shown.querySelectorAll("input:not([type=hidden]), textarea")].some((field) => field.value);
    if (!dialog && !writes) { window.htmx.trigger(shown, "headgate:revised"); return; }
    const who = [came.body.attribution?.hostname, came.body.entity?.value].filter(Boolean).join(" ");
    notice(`Revision ${came.revision} of this alert came meanwhile${who ? `: it names ${who}` : ""}. What you typed is kept; ${dialog ? "look again before you send it" : "send it to see the revision"}.`, true, dialog, true);
  }

  // -- keys ----------------------------------------------------------------------------------

  let afterG = 0;
  const keys = {
    j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
    Enter: () => here()?.querySelector("[data-open]")?.click(),
    o: () => { const link = here()?.querySelector("[data-page]") || document.querySelector("[data-page-link]"); if (link) location.href = link.dataset.page || link.href; },
    x: () => here()?.querySelector("[data-pick]")?.click(),
    z: () => document.querySelector(".notice [data-undo]")?.click(),
    n: ruleFrom,
    e: () => act("close"), a: () => act("take"), c: () => act("case"),
    "/": () => document.querySelector("[data-search]")?.focus(),
    f: () => document.querySelector("[data-find]")?.focus(),
    "?": () => document.getElementById("help")?.showModal(),
    t: switches.theme, u: switches.zone,
    "]": () => document.querySelector("[data-next]")?.click(),
    "[": () => document.querySelector("[data-before]")?.click(),
    Escape: () => document.querySelector("[data-close-beside]")?.click(),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
    if (event.key.startsWith("Arrow") && !here()) return;
    if (Date.now() - afterG < 1200) {
      afterG = 0;
      const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); location.href = link.href; return; }
    }
    if (event.key === "g") { afterG = Date.now(); return; }
    const does = keys[event.key];
    if (does) { event.preventDefault(); does(); }
  });

  addEventListener("click", (event) => {
    const at = (selector) => event.target.closest(selector);
    const button = at("[data-switch]");
    if (button) switches[button.dataset.switch]();
    else if (at("[data-help]")) document.getElementById("help").showModal();
    else if (at("[data-copy]")) copy(at("[data-copy]"));
    else if (at("[data-dismiss]")) at(".notice").remove();
    else if (at("[data-act]")) act(at("[data-act]").dataset.act);
    else if (at("[data-to-fresh]")) scrollTo({ top: 0 });
    else if (at("[data-rule-from]")) ruleFrom();
    else if (at("[data-cancel]")) at("dialog").close();
    else if (at("[data-stop]")) { window.stop(); sent.clear(); end(); }
    else if (at("[data-facets]")) {
      const open = document.querySelector(".desk").classList.toggle("show-facets");
      at("[data-facets]").setAttribute("aria-expanded", open);
    }
    else if (at("[data-close-beside]")) { event.preventDefault(); closeBeside(); }
    else if (at("[data-unpick]")) { picked().forEach((box) => { box.checked = false; }); showPicked(); }
    const row = at("[data-row]");
    if (row && !at("a[href], button, input")) goTo(row);
    else if (row && at("[data-open]")) goTo(row);
  });
  addEventListener("change", (event) => {
    if (event.target.matches("[data-pick]")) showPicked();
    if (event.target.matches("[data-pick-all]")) {
      all("[data-pick]").forEach((box) => { box.checked = event.target.checked; });
      showPicked();
    }
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });

  // -- as known then -------------------------------------------------------------------------

  function thenOf(slider) {
    return new Date(Number(slider.value) * 1000);
  }
  addEventListener("input", (event) => {
    if (!event.target.closest("[data-then]")) return;
    document.querySelector("[data-then-shown]").textContent = exact(thenOf(event.target), root.dataset.zone === "local");
  });
  addEventListener("change", (event) => {
    const slider = event.target;
    if (!slider.closest("[data-then]")) return;
    const url = new URL(location.href);
    url.searchParams.delete("cursor");
    if (slider.value === slider.max) url.searchParams.delete("known_by");
    else url.searchParams.set("known_by", thenOf(slider).toISOString());
    location.href = url.href;
  });

  // -- what renews itself --------------------------------------------------------------------

  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.verb !== "get") event.detail.parameters.csrf = document.body.dataset.csrf;
  });
  // What is live changes under who works on it: the row one is at or points at stays where it is, and
  // what came is counted.
  let keepPicked = [];
  let kept = null;
  let besideBefore = null;
  const isLive = (element) => Boolean(element?.matches?.("[data-live]"));
  const inView = ({ top, bottom }) => bottom > 0 && top < innerHeight;
  function anchorRow() {
    const row = here() ?? document.querySelector("[data-row]:hover");
    if (row && inView(row.getBoundingClientRect())) return row;
    return scrollY > 0 ? rows().find((each) => inView(each.getBoundingClientRect())) : null;
  }
  function keepPlace(live) {
    const anchor = live ? anchorRow() : null;
    kept = {
      live,
      here: here()?.dataset.row,
      next: here() ? rows().slice(rows().indexOf(here()) + 1).map((row) => row.dataset.row) : [],
      focused: document.activeElement?.matches("[data-row]"),
      anchor: anchor?.dataset.row,
      top: anchor?.getBoundingClientRect().top,
      known: live ? rows().map((row) => row.dataset.row) : [],
    };
  }
  const rowOf = (id) => (id ? document.querySelector(`[data-row="${CSS.escape(id)}"]`) : null);
  function backToPlace() {
    const { live, here: id, next, focused, anchor, top, known } = kept;
    if (id && (live || !here())) {
      // One that left the list: the next one has its place.
      const row = rowOf(id) ?? rowOf(next.find(rowOf)) ?? rows().at(-1);
      here()?.classList.remove("here");
      row?.classList.add("here");
      if (focused && row && document.activeElement !== row) row.focus({ preventScroll: true });
    }
    const stayed = rowOf(anchor);
    if (stayed) scrollBy(0, stayed.getBoundingClientRect().top - top);
    if (live) tellFresh(known);
  }
  // What an older page gives to the end of a list is not new: a row is that stands before one that
  // was there.
  const fresh = { above: [], unseen: 0 };
  function tellFresh(known) {
    const line = document.querySelector("[data-fresh]");
    if (!line || !known.length) return;
    const now = rows();
    const last = now.findLastIndex((row) => known.includes(row.dataset.row));
    const came = now.slice(0, last).filter((row) => !known.includes(row.dataset.row));
    came.forEach((row) => row.classList.add("fresh"));
    if (came.length) line.querySelector("[data-fresh-heard]").textContent = `${came.length} new`;
    fresh.above = [...fresh.above, ...came.map((row) => row.dataset.row)];
    if (document.hidden) fresh.unseen += came.length;
    showFresh();
  }
  function showFresh() {
    const button = document.querySelector("[data-to-fresh]");
    if (!button) return;
    fresh.above = fresh.above.filter((id) => (rowOf(id)?.getBoundingClientRect().bottom ?? 1) <= 0);
    const number = fresh.above.length;
    button.hidden = number === 0;
    button.textContent = number === 1 ? "1 new alert above" : `${number} new alerts above`;
    const title = document.title.replace(/^\(\d+\) /, "");
    document.title = fresh.unseen ? `(${fresh.unseen}) ${title}` : title;
  }
  addEventListener("scroll", () => { if (fresh.above.length) showFresh(); }, { passive: true });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    fresh.unseen = 0;
    showFresh();
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    besideBefore = document.getElementById("beside")?.dataset.alert ?? null;
    keepPicked = picked().map((box) => box.value);
    keepPlace(isLive(event.detail.target));
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    all("[data-pick]").forEach((box) => { if (keepPicked.includes(box.value)) box.checked = true; });
    if (kept) backToPlace();
    kept = null;
    showPicked();
    showTimes();
    reachSideways();
    const dialog = event.target.querySelector?.("dialog[data-now]");
    if (dialog && !dialog.open) dialog.showModal();
    // Behind a dialog nobody would see why it was refused.
    document.querySelector("dialog[open] form")?.prepend(...all("#notices > .notice.bad"));
    const beside = document.getElementById("beside");
    document.querySelector(".desk")?.classList.toggle("beside-open", Boolean(beside?.children.length));
    all("[data-row]").forEach((row) => row.classList.toggle("opened", row.dataset.row === beside?.dataset.alert));
    // The same alert anew stays where it was read.
    if (event.target.id === "beside" && beside.dataset.alert !== besideBefore) beside.scrollTop = 0;
    if (askedFrom && !document.querySelector("dialog[open]") && document.activeElement === document.body) {
      (askedFrom.isConnected ? askedFrom : here() ?? document.getElementById("main")).focus({ preventScroll: true });
      askedFrom = null;
    }
  });
  // A note that was sent is no longer being written.
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful && event.detail.elt.matches("form[data-sent-clears]")) event.detail.elt.reset();
  });
  document.addEventListener("headgate:changed", () => {
    picked().forEach((box) => { box.checked = false; });
    showPicked();
    all("[data-live]").forEach((element) => window.htmx.trigger(element, "headgate:renew"));
  });
  // A sign that says live while nothing comes would deceive.
  let silentSince = null;
  function sayLive(answered) {
    silentSince = answered ? null : silentSince ?? new Date();
    for (const sign of all("[data-live] .live, [data-live].live")) {
      sign.classList.toggle("off", !answered);
      sign.textContent = answered ? "live" : `not live: no answer since ${exact(silentSince, root.dataset.zone === "local").slice(11)}`;
    }
  }
  document.addEventListener("htmx:sendError", (event) => {
    const first = silentSince === null;
    if (isLive(event.detail.elt)) sayLive(false);
    if (first || !isLive(event.detail.elt)) notice("The server does not answer; what you see may be old.", true);
  });
  document.addEventListener("htmx:afterOnLoad", (event) => { if (isLive(event.detail.elt)) sayLive(true); });
  const renew = () => all("[data-live]").forEach((element) => window.htmx?.trigger(element, "headgate:renew"));
  // The browser reconnects by itself and says which event it saw last (Last-Event-ID).
  function listen() {
    const url = document.querySelector("[data-stream]")?.dataset.stream;
    if (!url || !window.EventSource) return;
    let waiting = 0;
    const source = new EventSource(url);
    source.addEventListener("alert", (event) => {
      revised(event);
      clearTimeout(waiting);
      waiting = setTimeout(() => { if (!document.querySelector("dialog[open]")) renew(); }, 400);
    });
    addEventListener("pagehide", () => source.close());
  }
  // Not at once: the page comes first, and who only passes by needs no stream.
  setTimeout(listen, 1500);
  setInterval(() => {
    if (document.visibilityState !== "visible" || document.querySelector("dialog[open]")) return;
    renew();
  }, Number(document.body.dataset.renew || 10) * 1000);
  setInterval(showTimes, 15000);

  // A table that is wider than its place is moved sideways by keys, too.
  function reachSideways() {
    all(".table-wrap").forEach((box) => {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    });
  }
  const start = () => {
    if (window.Idiomorph) {
      const { callbacks } = window.Idiomorph.defaults;
      // What the reader folds or opens stays so when the page renews itself.
      callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.matches("details")) && !(name === "tabindex" && node.matches(".table-wrap"));
      // So does what somebody is writing, and a chart that shows the same.
      callbacks.beforeNodeMorphed = (node, other) => {
        if (node.matches?.("textarea, input:not([type=hidden], [type=checkbox], [type=radio])")) return node.value === node.defaultValue;
        return !(node.matches?.("[data-chart]") && node.dataset.chart === other.dataset?.chart);
      };
    }
    // What was typed is kept in the tab until it is saved, as editor.js has it.
    const saved = document.querySelector("[data-saved]");
    if (saved) ["draft.", "try.editor:"].forEach((what) => sessionStorage.removeItem(`headgate.${what}${saved.dataset.saved}`));
    // A reload of what answers a form would send the form again.
    const address = document.querySelector("[data-address]");
    if (address) history.replaceState(history.state, "", address.dataset.address);
    showTimes();
    showPicked();
    reachSideways();
    addEventListener("resize", reachSideways);
    const opened = document.querySelector("[data-row].opened");
    if (opened) goTo(opened);
  };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
