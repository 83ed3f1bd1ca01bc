"use strict";
// The hands and eyes of the playground: controls, dragging, the address. flows.js calculates, pictures.js draws.
const Playground = (() => {
  const by = (id) => document.getElementById(id);
  const form = by("controls"), controls = [...form.elements].filter((field) => field.name && field.name !== "chosen");
  const UNDAMPED = ["plain_euler", "nesterov", "gradient_flow"]; // they do not ask for alpha(t)
  const KEPT = 600, TOO_FAR = 1e4, NEAR = 22; // states, units, pixels
  const { short } = Pictures;

  let runs = [], records = [], reach = 1, running = false, held = null, due = 0, last = 0, written = 0;

  // --- from the controls to two runs

  const settings = () => Object.fromEntries(
    controls.map(({ name, value, type }) => [name, type === "range" ? +value : value]));
  const chosen = () => Math.min(Math.max(Math.round(+by("chosen").value) || 1, 1), runs[0].x.length / 2) - 1;

  /** What `Flows.run` takes, for the flow with momentum (0) or the first-order flow (1). */
  const described = (which, set, x0, y0) => {
    const turn = Math.PI / 180, A = [set.a1, set.a2, set.aa * turn], B = [set.b1, set.b2, set.ba * turn];
    const system = { name: set.system, length: set.length, valley: A };
    return {
      system: { ...system, A: Flows.symmetric(...A), B: Flows.symmetric(...B) },
      damping: { r: set.r, m: set.m, t0: 1 },
      integrator: which === 0 ? set.integrator : "gradient_flow", h: which === 0 ? set.h : set.h1, x0, y0,
    };
  };

  /** Normal positions from a number: Mulberry's generator, Box and Muller's map. */
  const drawn = (n, seed) => {
    let state = (seed + 1) * 0x9e3779b9 >>> 0;
    const uniform = () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    return Float64Array.from(Array.from({ length: n }, () => {
      const size = Math.sqrt(-2 * Math.log(1 - uniform())), angle = 2 * Math.PI * uniform();
      return [size * Math.cos(angle), size * Math.sin(angle)];
    }).flat());
  };

  /** Both flows from the start that the controls describe. */
  const restart = () => {
    const set = settings(), x0 = drawn(set.n, set.seed);
    runs = [0, 1].map((which) => Flows.run(described(which, set, x0)));
    records = runs.map(() => ({ states: [], energy: [], ended: false }));
    reach = 0;
    by("chosen").max = set.n;
    say("");
    record();
  };

  /** The same particles and clock go on under changed settings. */
  const rebuild = () => {
    const set = settings();
    runs = runs.map((old, i) => {
      const { k, t, evaluations, history } = old;
      return Object.assign(Flows.run(described(i, set, old.x, old.y)), { k, t, evaluations, history });
    });
    records.forEach((kept) => Object.assign(kept, { energy: [], ended: false })); // an energy of another system
    record();
  };

  // --- time

  const record = () => runs.forEach((run, i) => {
    const kept = records[i];
    kept.states.push([run.x, run.y]);
    if (kept.states.length > KEPT) kept.states.shift();
    kept.energy.push([run.evaluations, run.flow.potential(run.x)]);
    if (kept.energy.length > 2000) kept.energy = kept.energy.filter((_, k) => k % 2 === 0);
  });

  const hold = (run) => {
    const x = run.x.slice(), y = run.y.slice();
    x.set(held.at, 2 * held.i);
    y.set([0, 0], 2 * held.i);
    Object.assign(run, { x, y, history: undefined }); // the old slopes are of another place
  };
  const take = (i) => {
    if (records[i].ended) return;
    const run = runs[i];
    run.advance();
    if (held) hold(run);
    if (run.x.every((value) => Math.abs(value) < TOO_FAR) && run.y.every(Number.isFinite)) return;
    records[i].ended = true;
    [run.x, run.y] = records[i].states.at(-1);
    say(`The flow ${i === 0 ? "with momentum" : "of first order"} left all bounds at t = ${short(run.t)}. `
      + "Take a smaller step or more damping, or start again.");
    if (records.every((kept) => kept.ended)) go(false);
  };
  /** One step with momentum, and as many of the first-order flow as use the same number of kernel evaluations. */
  const advance = () => {
    const before = runs[0].evaluations;
    take(0);
    for (let spent = Math.max(runs[0].evaluations - before, 1); spent > 0; spent--) take(1);
  };

  const frame = (now) => {
    if (running) {
      due += Math.min(now - last, 100) / 1000 * settings().speed;
      if (due >= 1) {
        for (; due >= 1; due--) advance();
        record();
      }
    }
    draw();
    last = now;
    if (running) requestAnimationFrame(frame);
  };
  const go = (on) => {
    running = on && !records.every((kept) => kept.ended);
    by("run").textContent = running ? "Stop" : "Start";
    by("run").setAttribute("aria-pressed", running);
    due = 0;
    last = performance.now();
    if (running) requestAnimationFrame(frame);
    else draw(true);
  };

  // --- words and pictures

  const say = (text) => { by("said").textContent = text; };

  const write = () => runs.forEach((run, i) => {
    const kinetic = i === 0 ? short(run.flow.kinetic(run.x, run.y)) : "–", energy = short(run.flow.potential(run.x));
    const values = { time: short(run.t), kernel: run.evaluations, energy, kinetic };
    for (const [name, value] of Object.entries(values)) by(`${name}-${i}`).textContent = value;
  });

  /** Only what the system and the scheme use is on show; only softmax attention takes eigenvalues below zero. */
  const labels = () => {
    const set = settings(), damped = !UNDAMPED.includes(set.integrator);
    const { uses } = by("system").selectedOptions[0].dataset;
    for (const name of ["a1", "a2"]) by(name).min = set.system.startsWith("softmax") ? -2 : 0.05;
    for (const field of controls.filter(({ type }) => type === "range")) {
      const kind = field.closest("label").dataset.of;
      const asked = kind === "damping" ? damped : !kind || uses.includes(kind);
      field.closest("label").hidden = !asked;
      field.nextElementSibling.textContent = short(+field.value);
    }
    for (const text of by("about").children) text.hidden = text.dataset.system !== set.system;
  };

  const pens = Object.fromEntries(["view-0", "view-1", "energy", "phase"].map((id) => [id, by(id).getContext("2d")]));
  const draw = (all = false) => {
    for (const { x } of runs) for (const value of x) reach = Math.max(reach, 1.12 * Math.abs(value));
    runs.forEach(({ x }, i) => Pictures.particles(pens[`view-${i}`], i, x, records[i].states, chosen(), reach));
    Pictures.energies(pens.energy, records, runs[0].flow.bound);
    Pictures.phases(pens.phase, records[0].states, chosen());
    if (all || performance.now() - written > 120) {
      write();
      written = performance.now();
    }
  };

  // --- hands

  /** Where a particle is in a picture, in pixels. */
  const seen = (which, i) => Pictures.placed(pens[`view-${which}`], reach, ...runs[which].x.slice(2 * i, 2 * i + 2));
  const local = ({ clientX, clientY }, canvas) => {
    const { left, top } = canvas.getBoundingClientRect();
    return [clientX - left, clientY - top];
  };
  /** The particle nearest to a point of a picture, if it is near enough to be meant. */
  const nearest = (which, [left, top]) => {
    let best = null, least = NEAR;
    for (let i = 0; i < runs[which].x.length / 2; i++) {
      const [u, v] = seen(which, i), distance = Math.hypot(u - left, v - top);
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  };
  const put = (i, at) => {
    held = { i, at };
    runs.forEach(hold);
    if (running) return;
    records.forEach((kept, r) => kept.states.push([runs[r].x, runs[r].y]));
    draw(true);
  };

  [0, 1].forEach((which) => {
    const pen = pens[`view-${which}`], { canvas } = pen;
    const drag = (event, i) => put(i, Pictures.unplaced(pen, reach, ...local(event, canvas)));
    const on = (name, task, options) => canvas.addEventListener(name, task, options);
    on("pointerdown", (event) => {
      const i = nearest(which, local(event, canvas));
      if (i === null) return;
      by("chosen").value = i + 1;
      canvas.setPointerCapture(event.pointerId);
      drag(event, i);
    });
    on("pointermove", (event) => {
      if (held) drag(event, held.i);
      else canvas.style.cursor = nearest(which, local(event, canvas)) === null ? "default" : "grab";
    });
    for (const name of ["pointerup", "pointercancel"]) on(name, () => { held = null; });
    on("touchstart", (event) => { // a finger on a particle drags it; anywhere else it scrolls the page
      if (nearest(which, local(event.touches[0], canvas)) !== null) event.preventDefault();
    }, { passive: false });
    on("keydown", (event) => {
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (!way) return;
      event.preventDefault();
      const i = chosen(), { x } = runs[which];
      put(i, [x[2 * i] + way[0] * reach / 40, x[2 * i + 1] + way[1] * reach / 40]);
      held = null;
    });
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== " " || event.target.closest("button, input, select")) return;
    event.preventDefault();
    go(!running);
  });
  const press = {
    run: () => go(!running),
    step: () => { go(false); advance(); record(); draw(true); },
    again: () => { restart(); draw(true); },
    draw: () => { by("seed").value = (+by("seed").value + 1) % 1000; changed("seed"); address(); },
  };
  for (const [name, task] of Object.entries(press)) by(name).addEventListener("click", task);
  const changed = (name) => {
    labels();
    if (["system", "integrator", "n", "seed"].includes(name)) restart();
    else if (!["speed", "chosen"].includes(name)) rebuild();
    draw(true);
  };
  const address = () => history.replaceState(null, "", `#${new URLSearchParams(settings())}`);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => changed(target.name));
  form.addEventListener("change", address); // not with every move of a slider: browsers refuse so many

  /** The settings that the address says, as far as they can be meant; the fields keep values in their ranges. */
  const read = () => {
    const words = new URLSearchParams(location.hash.slice(1)), left = [];
    for (const field of controls) { // the system comes first: it sets limits
      const word = words.get(field.name), before = field.value;
      if (word === null) continue;
      field.value = word;
      if (field.type === "range" ? !Number.isFinite(+word) || word === "" : field.value !== word) {
        field.value = before;
        left.push(field.name);
      }
      labels();
    }
    labels();
    restart();
    if (left.length) say(`The address holds values that cannot be used and were left out: ${left.join(", ")}.`);
  };

  // --- begin

  const fitted = () => Object.values(pens).forEach(Pictures.fit);
  const themed = () => { Pictures.colours(); draw(true); };
  fitted();
  read();
  themed();
  addEventListener("hashchange", () => { go(false); read(); draw(true); });
  new ResizeObserver(() => { fitted(); draw(); }).observe(document.body);
  new MutationObserver(themed).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) go(true);

  /** Where a particle is on the screen. */
  const place = (i) => {
    const { left, top } = pens["view-0"].canvas.getBoundingClientRect(), [u, v] = seen(0, i);
    return [left + u, top + v];
  };
  return { settings, described, place, get runs() { return runs; } };
})();
