"use strict";
// Words and numbers of a model at a stage, and the table of its guesses.
const OF_LAYER = {kinetic: "kinetic energy", potential: "potential energy", cosine: "cos(y, force)", z: "z"};
const AXES = {
  shared: (a, b) => `Axes: the two directions in which all stages vary most, ${a} and ${b} of the variance.`,
  own: () => "Axes: the two directions in which the tokens of this stage vary most; every stage has its own frame.",
  tokens: () => "Axes: from the centre to where the two tokens end, the second at a right angle to the first.",
};

function tell(model) {
  const stage = stageOf(model), {card, figures, text: {chosen}} = model, word = model.tokens[chosen];
  const name = model.stages[stage], place = model.first + chosen + 1;
  card.querySelector(".stage").textContent = name;
  const label = `${model.T} tokens of ${model.name} at ${name}; token ${place}, ${word}, is chosen`;
  model.svg.setAttribute("aria-label", label);
  const [a, b] = [0, 1].map((k) => percent(model.shares[k] ?? 0));
  card.querySelector(".axes-note").textContent = AXES[state.axes](a, b) + (model.y ? "" : " There are no momenta.");
  const layer = Math.max(1, model.layers[stage]) - 1;
  const entries = [
    ["token", quoted(word)],
    ["size of x", short(figures.size_x[stage][chosen])],
    ["size of y", short(figures.size_y?.[stage][chosen])],
    ["moved by", short(figures.moved[stage][chosen])],
    ...Object.entries(OF_LAYER).map(([key, title]) => [title, short(figures[key]?.[layer][chosen])]),
  ].map(([title, value]) => make("div", {}, make("dt", {}, title), make("dd", {}, value)));
  card.querySelector(".numbers").replaceChildren(...entries);
  for (const [s, row] of (model.rows ?? []).entries()) {
    if (s === stage) row.setAttribute("aria-current", "step");
    else row.removeAttribute("aria-current");
  }
}

function buildLens(model) {
  const {lens, card, tokens, T, S, text: {chosen}} = model;
  if (!lens) return;
  const follows = chosen + 1 < T, reached = lens.reached[chosen], guesses = [...Array(lens.k).keys()];
  const at = (s, k) => (s * T + chosen) * lens.k + k, final = lens.guesses[at(S - 1, 0)];
  const guess = (s, k) => make("td", lens.guesses[at(s, k)] === final ? {class: "final"} : {},
    quoted(lens.words[lens.guesses[at(s, k)]]), " ", make("small", {}, percent(lens.chances[at(s, k)] / 1e4)));
  const rank = (s) => make("td", {class: "figure"}, follows ? String(lens.ranks[s * T + chosen]) : "–");
  const title = (s) => model.stages[s].replace("layer ", "").replace(",", "") + (s === reached ? " ●" : "");
  model.rows = model.stages.map((_, s) =>
    make("tr", {}, make("th", {scope: "row"}, title(s)), rank(s), ...guesses.map((k) => guess(s, k))));
  const heads = ["stage", "true rank", ...guesses.map((k) => k ? `${k + 1}.` : "best guess")];
  const top = make("tr", {}, ...heads.map((head) => make("th", {scope: "col"}, head)));
  const table = make("table", {}, make("thead", {}, top), make("tbody", {}, ...model.rows));
  card.querySelector(".lens").replaceChildren(table);
  const next = follows ? [" comes ", quoted(tokens[chosen + 1]), ". "] : [" the text ends. "];
  card.querySelector(".guess").replaceChildren("After ", quoted(tokens[chosen]), ...next, "The final guess ",
    quoted(lens.words[final]), ` is first reached at ${model.stages[reached]} (●).`);
}
