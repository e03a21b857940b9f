// What was typed into a form is kept in this tab until it is sent: a session that ends, a value that
// is refused, or another form of the page that is sent must not take it away. The rule editor keeps
// its own text (editor.js).
"use strict";
(() => {
  const KEY = "headgate.typed";
  const first = (selector) => document.querySelector(selector);
  const onLogin = location.pathname === "/login" || location.pathname.startsWith("/login/");
  const failed = first("[data-failed]");

  function read() {
    try { return JSON.parse(sessionStorage.getItem(KEY)); } catch { return null; }
  }
  function write(what) {
    try {
      if (what) sessionStorage.setItem(KEY, JSON.stringify(what));
      else sessionStorage.removeItem(KEY);
    } catch { /* full or forbidden: then it is lost, as it always was */ }
  }

  // -- what is kept --------------------------------------------------------------------------

  const goesTo = (form) => form.getAttribute("hx-post") || form.getAttribute("action") || "";
  const like = (form) => [...document.forms].filter((other) => goesTo(other) === goesTo(form));
  const kept = (field) => field.name && !["hidden", "password", "submit", "button", "file"].includes(field.type);
  const mayKeep = (form) => form && !form.matches("[data-editor], [action='/login'], [action='/logout'], [method=dialog]");

  // A text that is no longer what the page had.
  const written = (field) => field.matches("textarea, input:not([type=checkbox], [type=radio])") && field.value !== field.defaultValue;

  function contents(form, last) {
    return {
      form: goesTo(form),
      place: like(form).indexOf(form),
      last,
      ask: form.closest("dialog") ? window.headgateAsked ?? null : null,
      fields: [...form.elements].filter(kept).map((each) => [each.name, each.value, Boolean(each.checked), written(each)]),
    };
  }
  addEventListener("input", (event) => {
    const { form } = event.target;
    if (mayKeep(form)) write({ page: location.pathname, ...contents(form, event.target.name) });
  });
  // On the window: what is not sent after all has been prevented by then.
  addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post" || !mayKeep(form)) return;
    const before = read();
    const unsent = (other) => other !== form && other.method === "post" && mayKeep(other) && [...other.elements].some((field) => kept(field) && written(field));
    write({
      page: location.pathname,
      sent: true,
      ...contents(form, before?.form === goesTo(form) ? before.last : null),
      others: [...document.forms].filter(unsent).map((other) => contents(other, null)),
    });
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    // Of the detail: the form itself may be gone from the page by now.
    const { elt, requestConfig, successful } = event.detail;
    if (successful && requestConfig?.verb === "post" && elt.closest("form")) write(null);
  });

  // -- and comes back ------------------------------------------------------------------------

  // `homeless`: texts whose fields the page has no longer.
  function say(words, bad, homeless) {
    const lost = homeless.length ? " The page has no place any more for what you typed; here it is:" : "";
    const box = window.headgateNotice(words + lost, bad, first("dialog[open] form"), true);
    if (!homeless.length) return;
    const text = document.createElement("textarea");
    text.readOnly = true;
    text.setAttribute("aria-label", "What you typed");
    text.value = homeless.join("\n\n");
    box.firstChild.append(text);
  }
  function fill(typed) {
    const form = [...document.forms].filter((each) => goesTo(each) === typed.form)[typed.place];
    const fields = form ? [...form.elements] : [];
    const homeless = [];
    for (const [name, value, checked, wasWritten] of typed.fields) {
      const same = fields.filter((each) => each.name === name);
      if (!same.length && wasWritten && value) homeless.push(value);
      for (const field of same) {
        if (field.type === "radio") { if (field.value === value) field.checked = checked; }
        else if (field.type === "checkbox") { if (field.value === value) field.checked = checked; }
        else field.value = value;
      }
    }
    for (let fold = form?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    fields.find((field) => field.name && field.name === typed.last)?.focus();
    return homeless;
  }
  const fillAll = (several) => several.flatMap(fill);
  function tell(typed) {
    const words = typed.problem ? `Not done: ${typed.problem}` : "Your session ended before this was sent. What you typed is here again: look at it, and send it.";
    say(words, Boolean(typed.problem), fillAll([typed, ...(typed.others ?? [])]));
  }
  function again(typed) {
    if (!typed.ask || !window.htmx) { tell(typed); return; }
    window.headgateAsked = typed.ask;
    document.addEventListener("htmx:afterSettle", function settled() {
      if (!first("dialog[open] form")) return;
      document.removeEventListener("htmx:afterSettle", settled);
      tell(typed);
    });
    window.htmx.ajax("GET", typed.ask, { target: "#act", swap: "innerHTML" });
  }

  function start() {
    const typed = read();
    if (onLogin) {
      if (typed) write({ ...typed, lost: true });
      return;
    }
    if (failed) {
      const back = failed.dataset.failed;
      const same = typed && back.split("?")[0] === typed.page;
      const problem = first("[data-failed-why]").innerText;
      write({ ...(same ? typed : { page: back.split("?")[0], fields: [], form: null }), lost: true, problem });
      location.replace(back);
      return;
    }
    write(null);
    const here = typed?.page === location.pathname;
    if (typed?.lost && here) again(typed);
    else if (typed?.sent && !typed.lost && typed.others.length) {
      const homeless = fillAll(typed.others);
      if (here || homeless.length) say("What you typed into another form was not sent yet.", false, homeless);
    }
  }
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
