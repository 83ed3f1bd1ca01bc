// Formulas, drawn by the KaTeX that lies beside this file; without it they stay readable as TeX.
"use strict";
const draw = () => {
  for (const element of document.querySelectorAll(".arithmatex:not([data-drawn])")) {
    const text = element.textContent.trim(), display = text.startsWith("\\[");
    katex.render(text.slice(2, -2), element, { displayMode: display, throwOnError: false });
    element.dataset.drawn = "";
  }
};
if (typeof katex !== "undefined") document.addEventListener("DOMContentLoaded", draw);
if (typeof katex !== "undefined" && document.readyState !== "loading") draw();

// Long names in tables break after a dot, a slash, a colon or a dash below, never inside a word.
const breakNames = () => {
  for (const code of document.querySelectorAll("td code")) {
    const parts = code.textContent.split(/(?<=[./:_])/);
    code.replaceChildren(...parts.flatMap((part) => [part, document.createElement("wbr")]));
  }
};
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", breakNames); else breakNames();
