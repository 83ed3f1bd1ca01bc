"use strict";
// Values come from the page's one island and reach the page as text and numbers only: never as markup.
const scene = JSON.parse(document.getElementById("scene").textContent);
const $ = (id) => document.getElementById(id);
const DRAWN = ["svg", "g", "path", "line", "circle", "text"];

function make(name, attributes = {}, ...children) {
  const svg = DRAWN.includes(name) && "http://www.w3.org/2000/svg";
  const node = set(svg ? document.createElementNS(svg, name) : document.createElement(name), attributes);
  node.append(...children);
  return node;
}

function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

function short(value) { // three digits of a number
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e5) value = String(value);
  else if (size >= 1e5 || (size > 0 && size < 1e-3)) value = value.toExponential(1).replace("e+", "e");
  else value = size >= 100 ? value.toFixed(0) : value.toPrecision(3);
  return value.replaceAll("-", "−");
}

function percent(share) {
  if (share < 0.001) return "<0.1 %";
  return share >= 0.0995 ? `${Math.round(100 * share)} %` : `${(100 * share).toFixed(1)} %`;
}

const quoted = (word) => make("bdi", {}, word); // whichever way it is written, its neighbours stay where they are

// --- models: their numbers as they were packed, and where each is at the slider's place

const state = {at: 0, playing: false, axes: "shared", pair: [0, 1]};

function unpacked({unit, data}) {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return Float32Array.from(new Int16Array(bytes.buffer), (integer) => integer * unit);
}

const models = scene.models.map((model, n) => ({
  ...model, x: unpacked(model.x), y: model.y && unpacked(model.y), T: model.tokens.length, S: model.stages.length,
  card: document.querySelectorAll(".model")[n],
}));
const longest = Math.max(...models.map((model) => model.S)) - 1;
const share = () => longest ? state.at / longest : 0; // of the depth
const depth = (model) => share() * (model.S - 1); // between stages while playing
const stageOf = (model) => Math.round(depth(model));

// --- texts: models that cut the text alike share one row of tokens and one chosen token

const texts = [];
for (const model of models) {
  const {tokens, first} = model, key = JSON.stringify([first, tokens]);
  model.text = texts.find((text) => text.key === key) ?? {key, tokens, first, chosen: tokens.length >> 1, models: []};
  if (model.text.models.push(model) === 1) texts.push(model.text);
}

function buildTexts() {
  for (const text of texts) {
    text.buttons = text.tokens.map((word) => make("button", {type: "button", class: "token", tabindex: -1}, word));
    const readers = texts.length > 1 ? ` as ${text.models.map((model) => model.name).join(", ")} cut it` : "";
    const label = `Tokens of the text${readers}`;
    const row = make("div", {class: "text", role: "group", "aria-label": label}, ...text.buttons);
    row.addEventListener("click", (event) => {
      const i = text.buttons.indexOf(event.target.closest(".token"));
      if (i >= 0) choose(text, i);
    });
    row.addEventListener("keydown", (event) => walk(text, event));
    $("texts").append(row);
  }
}

function walk(text, event) {
  const last = text.tokens.length - 1;
  const to = {ArrowRight: text.chosen + 1, ArrowLeft: text.chosen - 1, Home: 0, End: last}[event.key];
  if (to === undefined) return;
  event.preventDefault();
  choose(text, Math.min(last, Math.max(0, to)));
  text.buttons[text.chosen].focus();
}

function choose(text, i) {
  for (const [button, on] of [[text.buttons[text.chosen], false], [text.buttons[i], true]]) {
    set(button, {"aria-pressed": on, tabindex: on ? 0 : -1});
  }
  text.chosen = i;
  const row = text.buttons[i].parentElement, place = text.buttons[i].offsetTop - row.offsetTop;
  if (place < row.scrollTop || place > row.scrollTop + row.clientHeight - 20) row.scrollTop = place;
  for (const model of text.models) for (const renew of [buildLens, draw, tell]) renew(model);
  const counted = `Token ${text.first + i + 1} of ${text.first + text.tokens.length}: `;
  $("said").replaceChildren(counted, quoted(text.tokens[i]));
}

// --- words and numbers of a model at a stage, and the table of its guesses
const OF_LAYER = {kinetic: "kinetic energy", potential: "potential energy", cosine: "cos(y, force)", z: "z"};
const AXES_NOTE = {
  shared: (a, b) => `Axes: the two directions in which all stages vary most, ${a} and ${b} of the variance.`,
  own: () => "Axes: the two directions in which the tokens of this stage vary most; every stage has its own frame.",
  tokens: () => "Axes: from the centre to where the two tokens end, the second at a right angle to the first.",
};

function tell(model) {
  const stage = stageOf(model), {card, figures, text: {chosen}} = model, word = model.tokens[chosen];
  const name = model.stages[stage], place = model.first + chosen + 1;
  card.querySelector(".stage").textContent = name;
  model.svg.ariaLabel = `${model.T} tokens of ${model.name} at ${name}; token ${place}, ${word}, is chosen`;
  const [a, b] = [0, 1].map((k) => percent(model.shares[k] ?? 0));
  card.querySelector(".axes-note").textContent = AXES_NOTE[state.axes](a, b) + (model.y ? "" : " There are no momenta.");
  const layer = Math.max(1, model.layers[stage]) - 1;
  const entries = [
    ["token", quoted(word)],
    ["size of x", short(figures.size_x[stage][chosen])],
    ["size of y", short(figures.size_y?.[stage][chosen])],
    ["moved by", short(figures.moved[stage][chosen])],
    ...Object.entries(OF_LAYER).map(([key, title]) => [title, short(figures[key]?.[layer][chosen])]),
  ].map(([title, value]) => make("div", {}, make("dt", {}, title), make("dd", {}, value)));
  card.querySelector(".numbers").replaceChildren(...entries);
  for (const [s, row] of (model.rows ?? []).entries()) row.ariaCurrent = s === stage ? "step" : null;
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
