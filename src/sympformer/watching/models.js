"use strict";
// Values come from the page's one island and reach the page as text and numbers only: never as markup.
const scene = JSON.parse(document.getElementById("scene").textContent);
const $ = (id) => document.getElementById(id);
const DRAWN = ["svg", "g", "path", "line", "circle", "text"];

function make(name, attributes = {}, ...children) {
  const drawing = DRAWN.includes(name);
  const node = drawing ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
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
  ...model,
  x: unpacked(model.x),
  y: model.y && unpacked(model.y),
  T: model.tokens.length,
  S: model.stages.length,
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
  model.text = texts.find((text) => text.key === key);
  if (!model.text) {
    model.text = {key, tokens, first, chosen: tokens.length >> 1, models: []};
    texts.push(model.text);
  }
  model.text.models.push(model);
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
    button.setAttribute("aria-pressed", String(on));
    button.tabIndex = on ? 0 : -1;
  }
  text.chosen = i;
  const row = text.buttons[i].parentElement, place = text.buttons[i].offsetTop - row.offsetTop;
  if (place < row.scrollTop || place > row.scrollTop + row.clientHeight - 20) row.scrollTop = place;
  for (const model of text.models) {
    buildLens(model);
    draw(model);
    tell(model);
  }
  const counted = `Token ${text.first + i + 1} of ${text.first + text.tokens.length}: `;
  $("said").replaceChildren(counted, quoted(text.tokens[i]));
}
