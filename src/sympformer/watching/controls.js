"use strict";
// One slider for all models, playing, and what to draw.
const STEP = 800; // milliseconds a stage
const alike = models.every((model) => model.stages.join() === models[0].stages.join());
let before = null; // when the last frame was

function show() {
  $("depth").value = Math.round(state.at);
  const said = alike ? models[0].stages[stageOf(models[0])] : `${Math.round(100 * share())} % of the depth`;
  $("stage").textContent = said;
  $("depth").setAttribute("aria-valuetext", said);
  for (const model of models) {
    draw(model);
    if (Number.isInteger(state.at)) tell(model);
  }
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
  $("play").textContent = on ? "Pause" : "Play";
  $("play").setAttribute("aria-pressed", String(on));
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
for (const model of models) buildSpace(model);
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
