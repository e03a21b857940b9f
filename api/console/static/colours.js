// Colours of YAML and SQL. The text area stays what people, the keyboard and screen readers use; what
// is coloured lies under it, hidden from them, with the same letters in the same places.
"use strict";
(() => {
  // What takes longer to colour than a key press may last is left plain.
  const LONGEST = 30000;

  // Nodes and never markup: what was typed or logged must not become an element.
  function nodes(tokens) {
    return [tokens].flat().map((token) => {
      if (typeof token === "string") return document.createTextNode(token);
      const part = document.createElement("span");
      part.className = `tok-${token.type}`;
      part.append(...nodes(token.content));
      return part;
    });
  }
  const coloured = (text, language) => nodes(window.Prism.tokenize(text, window.Prism.languages[language]));

  function under(area) {
    const below = document.createElement("pre");
    const code = document.createElement("code");
    const frame = document.createElement("div");
    below.setAttribute("aria-hidden", "true");
    below.className = `${area.className} below`;
    frame.className = "coloured";
    below.append(code);
    area.before(frame);
    frame.append(below, area);
    let shown = null;
    const follow = () => { code.style.transform = `translate(${-area.scrollLeft}px, ${-area.scrollTop}px)`; };
    const draw = () => {
      if (area.value !== shown) {
        shown = area.value;
        const plain = shown.length > LONGEST;
        frame.classList.toggle("plain", plain);
        code.replaceChildren(...(plain ? [] : coloured(shown, area.dataset.colours)));
      }
      follow();
    };
    area.addEventListener("input", draw);
    area.addEventListener("scroll", follow);
    // Text that a script put there makes no event of its own.
    document.body.addEventListener("headgate:text", draw);
    addEventListener("pageshow", draw);
    draw();
  }

  document.querySelectorAll("textarea[data-colours]").forEach(under);
  const boxes = () => document.querySelectorAll("pre[data-colours]").forEach((box) => {
    // Where letters that deceive are marked, the marks count for more.
    if (box.children.length || box.textContent.length > LONGEST) return;
    box.replaceChildren(...coloured(box.textContent, box.dataset.colours));
  });
  document.addEventListener("htmx:afterSettle", boxes);
  boxes();
})();
