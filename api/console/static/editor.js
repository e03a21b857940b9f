// The rule editor: numbers beside the lines, marks on those that are wrong, and what was typed kept
// in this tab until it is saved: a session that ends, or a wrong key, must not take it away.
"use strict";
(() => {
  const store = (key) => `headgate.draft.${key}`;
  const form = document.querySelector("[data-editor]");
  const text = form.querySelector("[data-text]");
  const gutter = form.querySelector("[data-gutter]");
  const key = store(form.dataset.editor);
  const before = text.value;

  // -- lines ---------------------------------------------------------------------------------

  function number() {
    const lines = text.value.split("\n").length;
    while (gutter.children.length > lines) gutter.lastChild.remove();
    while (gutter.children.length < lines) {
      const line = document.createElement("span");
      line.textContent = gutter.children.length + 1;
      gutter.append(line);
    }
    follow();
  }
  function follow() {
    gutter.scrollTop = text.scrollTop;
  }
  function mark() {
    [...gutter.children].forEach((line) => { line.className = ""; line.title = ""; });
    // The worst last: a line that is wrong and odd is shown as wrong.
    for (const kind of ["odd-line", "bad"]) {
      form.querySelectorAll(`#check [data-mark="${kind}"][data-line]`).forEach((item) => {
        const line = gutter.children[item.dataset.line - 1];
        if (line) { line.className = kind; line.title = item.querySelector("span")?.innerText ?? ""; }
      });
    }
  }
  function jump(line) {
    const lines = text.value.split("\n");
    const begin = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    text.focus();
    text.setSelectionRange(begin, begin + (lines[line - 1] ?? "").length);
    text.scrollTop = Math.max(0, (line - 6) * parseFloat(getComputedStyle(text).lineHeight));
    follow();
  }

  // -- writing -------------------------------------------------------------------------------

  // As if it were typed, so that it can be undone.
  const type = (what) => document.execCommand("insertText", false, what);
  text.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      form.requestSubmit();
    } else if (event.key === "Tab" && !event.shiftKey && !event.ctrlKey && !event.altKey) {
      event.preventDefault();
      type("  ");
    } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
      const line = text.value.slice(0, text.selectionStart).split("\n").pop();
      const indent = line.match(/^ */)[0] + (/:\s*[>|]?$/.test(line) ? "  " : "");
      if (indent) { event.preventDefault(); type(`\n${indent}`); }
    }
  });

  // -- what was typed ------------------------------------------------------------------------

  let waiting = 0;
  function keep() {
    try {
      if (text.value === before && !("asTyped" in form.dataset)) sessionStorage.removeItem(key);
      else sessionStorage.setItem(key, JSON.stringify({ text: text.value, at: Date.now() }));
    } catch { /* full or forbidden: the page itself still has it */ }
  }
  function kept() {
    try { return JSON.parse(sessionStorage.getItem(key)); } catch { return null; }
  }
  function offer() {
    const known = kept();
    const box = document.querySelector("[data-kept]");
    // What the server sent back is what was typed last.
    if (!known || known.text === before || "asTyped" in form.dataset) { keep(); return; }
    box.hidden = false;
    box.querySelector("[data-kept-when]").textContent = `It is of ${new Date(known.at).toLocaleString()}.`;
    box.querySelector("[data-kept-take]").addEventListener("click", () => {
      text.value = known.text;
      box.hidden = true;
      changed();
      document.body.dispatchEvent(new CustomEvent("headgate:text"));
      text.focus();
    });
    box.querySelector("[data-kept-drop]").addEventListener("click", () => { box.hidden = true; keep(); });
  }
  function changed() {
    number();
    clearTimeout(waiting);
    waiting = setTimeout(keep, 150);
  }
  text.addEventListener("input", changed);
  text.addEventListener("scroll", follow);
  form.addEventListener("submit", keep);
  document.addEventListener("htmx:afterSettle", (event) => { if (event.target.id === "check") mark(); });
  form.addEventListener("click", (event) => {
    const line = event.target.closest("[data-jump]");
    if (line) jump(Number(line.dataset.jump));
  });
  number();
  offer();
})();
