"use strict";
// Physics by depth: a line a model, the slider's place as a dotted line, the figures there in words.
const FRAME = {width: 320, height: 150, left: 56, right: 8, top: 8, bottom: 17};
const DASHES = ["", "6 3", "2 2", "8 3 2 3"];
const charts = []; // what to call when the slider moves

function dashOf(model) { // models of one colour differ by their dashes
  return DASHES[models.filter((other) => other.family === model.family).indexOf(model) % DASHES.length];
}

function buildCharts() {
  const sample = (model) => make("path", {class: "curve", d: "M0 5H32", "stroke-dasharray": dashOf(model)});
  const line = (model) => make("svg", {viewBox: "0 0 32 10", "aria-hidden": "true"}, sample(model));
  $("legend").append(...models.map((model) => make("span", {class: model.family}, line(model), quoted(model.name))));
  for (const [name, title] of Object.entries(scene.quantities)) {
    const owners = models.filter((model) => model.curves[name]?.some((value) => value !== null));
    if (owners.length) $("charts").append(chart(name, title, owners));
  }
}

function chart(name, title, owners) {
  const {width, height, left, right, top, bottom} = FRAME;
  const values = owners.flatMap((model) => model.curves[name]).filter((value) => value !== null);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const slack = high - low <= 1e-9 * Math.abs(high) ? Math.abs(high) / 2 || 1 : 0; // a level line lies in the middle
  [low, high] = [low - slack, high + slack];
  const across = (share) => left + share * (width - left - right);
  const up = (value) => height - bottom - (value - low) / (high - low) * (height - top - bottom);
  const label = (x, y, anchor, words) => make("text", {x, y, "text-anchor": anchor}, words);
  const grid = [low, (low + high) / 2, high].flatMap((value) => [
    make("line", {class: "grid", x1: left, x2: width - right, y1: up(value), y2: up(value)}),
    label(left - 5, up(value) + 3, "end", short(value)),
  ]);
  const ends = [label(left, height - 4, "start", "embedding"), label(width - right, height - 4, "end", "last layer")];
  const now = make("line", {class: "now", y1: top, y2: height - bottom}), said = make("figcaption");
  const curves = owners.map((model) => curve(model, name, across, up));
  charts.push(() => {
    set(now, {x1: across(share()), x2: across(share())});
    said.replaceChildren(...reading(name, owners));
  });
  const frame = {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title} by depth`};
  return make("figure", {}, make("h3", {}, title), make("svg", frame, ...grid, ...curves, now, ...ends), said);
}

// The stages a curve has values at: all of them, or those where a layer starts.
const placesOf = (model, name) => model.curves[name].length === model.S ? [...model.stages.keys()] : model.starts;

function curve(model, name, across, up) {
  const values = model.curves[name];
  const spots = placesOf(model, name).map((s, n) => [across(s / Math.max(1, model.S - 1)), values[n]])
    .filter(([, value]) => value !== null).map(([u, value]) => [u.toFixed(1), up(value).toFixed(1)]);
  const d = `M${spots.map((spot) => spot.join(" ")).join("L")}`;
  const line = make("path", {class: "curve", d, "stroke-dasharray": dashOf(model)});
  return make("g", {class: model.family}, line, ...spots.map(([cx, cy]) => make("circle", {cx, cy, r: 2})));
}

function reading(name, owners) {
  const words = models.map((model) => {
    if (!owners.includes(model)) return [quoted(model.name), " has none"];
    const last = placesOf(model, name).findLastIndex((s) => s <= stageOf(model));
    return [quoted(model.name), ` ${short(model.curves[name][Math.max(0, last)])}`];
  });
  return words.flatMap((part, n) => n ? ["; ", ...part] : part);
}

// --- one slider for all models, playing, and what to draw
const STEP = 800; // milliseconds a stage
const alike = models.every((model) => model.stages.join() === models[0].stages.join());
let before = null; // when the last frame was

function show() {
  $("depth").value = Math.round(state.at);
  const said = alike ? models[0].stages[stageOf(models[0])] : `${Math.round(100 * share())} % of the depth`;
  $("stage").textContent = said;
  set($("depth"), {"aria-valuetext": said});
  for (const model of models) draw(model);
  if (Number.isInteger(state.at)) models.forEach(tell);
  for (const move of charts) move();
}

function tick(time) {
  if (!state.playing) return;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches, passed = (time - (before ?? time)) / STEP;
  if (before === null || !still || passed >= 1) {
    const stage = Math.floor(state.at);
    state.at = Math.min(longest, still ? Math.round(state.at + Math.min(1, passed)) : state.at + passed);
    if (Math.floor(state.at) !== stage) models.forEach(tell);
    before = time;
    show();
  }
  if (state.at >= longest) play(false);
  else requestAnimationFrame(tick);
}

function play(on) {
  state.playing = on;
  before = null;
  set($("play"), {"aria-pressed": on}).textContent = on ? "Pause" : "Play";
  state.at = on && state.at >= longest ? 0 : Math.round(state.at);
  show();
  if (on) requestAnimationFrame(tick);
}

function buildPair() {
  const {tokens, first} = texts[0];
  state.pair = [0, Math.min(1, tokens.length - 1)];
  for (const [n, id] of ["token-a", "token-b"].entries()) {
    $(id).append(...tokens.map((word, i) => make("option", {value: i}, `${first + i + 1}: ${word}`)));
    $(id).value = state.pair[n];
    $(id).addEventListener("change", () => {
      state.pair[n] = Number($(id).value);
      show();
    });
  }
}

buildTexts();
buildPair();
models.forEach(buildSpace);
buildCharts();
$("names").checked = models.every((model) => model.T <= 24);
$("depth").max = longest;
$("depth").addEventListener("input", () => {
  const to = Number($("depth").value);
  if (state.playing) play(false);
  state.at = to;
  show();
});
$("play").addEventListener("click", () => play(!state.playing));
$("axes").addEventListener("change", () => {
  state.axes = $("axes").value;
  $("pair").hidden = state.axes !== "tokens";
  show();
});
for (const id of ["momenta", "lines", "trails", "names"]) $(id).addEventListener("change", show);
for (const text of texts) choose(text, text.chosen);
show();
