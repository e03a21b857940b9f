// What was typed into a form is kept in this tab until it is sent: a session that ends, or a value
// that is refused, must not take it away. The rule editor keeps its own text (editor.js).
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

  function keep(form, field) {
    write({
      page: location.pathname,
      form: goesTo(form),
      place: like(form).indexOf(form),
      last: field?.name ?? null,
      ask: form.closest("dialog") ? window.headgateAsked ?? null : null,
      fields: [...form.elements].filter(kept).map((each) => [each.name, each.value, Boolean(each.checked)]),
    });
  }
  addEventListener("input", (event) => {
    const { form } = event.target;
    if (mayKeep(form)) keep(form, event.target);
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    // Of the detail: the form itself may be gone from the page by now.
    const { elt, requestConfig, successful } = event.detail;
    if (successful && requestConfig?.verb === "post" && elt.closest("form")) write(null);
  });

  // -- and comes back ------------------------------------------------------------------------

  function say(problem) {
    const words = problem ? `Not done: ${problem}` : "Your session ended before this was sent. What you typed is here again: look at it, and send it.";
    window.headgateNotice(words, Boolean(problem), first("dialog[open] form"), true);
  }
  function fill(typed) {
    const form = [...document.forms].filter((each) => goesTo(each) === typed.form)[typed.place];
    if (!form) return false;
    for (const [name, value, checked] of typed.fields) {
      for (const field of [...form.elements].filter((each) => each.name === name)) {
        if (field.type === "radio") { if (field.value === value) field.checked = checked; }
        else if (field.type === "checkbox") { if (field.value === value) field.checked = checked; }
        else field.value = value;
      }
    }
    for (let fold = form.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    const last = [...form.elements].find((field) => field.name === typed.last);
    last?.focus();
    return true;
  }
  function again(typed) {
    if (!typed.ask || !window.htmx) { fill(typed); say(typed.problem); return; }
    window.headgateAsked = typed.ask;
    document.addEventListener("htmx:afterSettle", function settled() {
      if (!first("dialog[open] form")) return;
      document.removeEventListener("htmx:afterSettle", settled);
      fill(typed);
      say(typed.problem);
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
    if (typed?.lost && typed.page === location.pathname) again(typed);
  }
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
