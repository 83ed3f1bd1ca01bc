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
