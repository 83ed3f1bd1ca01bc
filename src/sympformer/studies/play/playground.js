"use strict";
// The hands and eyes of the playground: controls, dragging, the address. flows.js calculates, pictures.js draws.
const Playground = (() => {
  const by = (id) => document.getElementById(id);
  const form = by("controls"), controls = [...form.elements].filter((field) => field.name && field.name !== "chosen");
  const DAMPED = { nesterov: ["r"], constant: ["m"], "log-linear": ["r", "m"] };
  const UNDAMPED = ["plain_euler", "nesterov", "gradient_flow"]; // they do not ask for alpha(t)
  const KEPT = 600, TOO_FAR = 1e4, NEAR = 22; // states, units, pixels
  const { short } = Pictures;

  let runs = [], records = [], reach = 1, running = false, held = null, due = 0, last = 0, written = 0, timer = 0;
  const timings = []; // [milliseconds since the frame before, milliseconds of work], the latest last

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
      damping: { r: set.damping === "constant" ? 0 : set.r, m: set.damping === "nesterov" ? 0 : set.m, t0: 1 },
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

  /** Both flows from the start that the controls describe, or from a state that an address held. */
  const restart = (from) => {
    const set = settings(), x0 = from ? from.x : drawn(set.n, set.seed);
    runs = [Flows.run(described(0, set, x0, from?.y)), Flows.run(described(1, set, from ? from.first : x0))];
    if (from) runs.forEach((run, i) => Object.assign(run, from.clocks[i]));
    records = runs.map(() => ({ states: [], energy: [], ended: false }));
    reach = 0;
    by("chosen").max = runs[0].x.length / 2;
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
    const begun = performance.now();
    if (running) {
      due += Math.min(now - last, 100) / 1000 * settings().speed;
      if (due >= 1) {
        for (; due >= 1; due--) advance();
        record();
      }
    }
    draw();
    timings.push([now - last, performance.now() - begun]);
    if (timings.length > KEPT) timings.shift();
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
    else shown();
  };
  /** After a change while nothing runs: draw, and let the address say it. */
  const shown = () => {
    draw(true);
    clearTimeout(timer);
    timer = setTimeout(address, 250);
  };

  // --- words and pictures

  const say = (text) => { by("said").textContent = text; };

  /** Groups of particles that chains of short distances join. */
  const clusters = (x, near) => {
    const left = new Set(Array.from({ length: x.length / 2 }, (_, i) => 2 * i));
    let count = 0;
    for (const first of left) {
      const chain = [first];
      left.delete(first);
      count++;
      for (const k of chain) {
        for (const j of left) {
          if (Math.hypot(x[k] - x[j], x[k + 1] - x[j + 1]) <= near && left.delete(j)) chain.push(j);
        }
      }
    }
    return count;
  };
  const write = () => runs.forEach((run, i) => {
    const kinetic = i === 0 ? short(run.flow.kinetic(run.x, run.y)) : "–", energy = short(run.flow.potential(run.x));
    const values = { time: short(run.t), kernel: run.evaluations, energy, kinetic, clusters: clusters(run.x, reach / 15) };
    for (const [name, value] of Object.entries(values)) by(`${name}-${i}`).textContent = value;
  });

  /** Only what the system and the scheme use is on show; only softmax attention takes eigenvalues below zero. */
  const labels = () => {
    const set = settings(), damped = !UNDAMPED.includes(set.integrator);
    const { uses } = by("system").selectedOptions[0].dataset;
    for (const name of ["a1", "a2"]) by(name).min = set.system.startsWith("softmax") ? -2 : 0.05;
    for (const field of controls.filter(({ type }) => type === "range")) {
      const kind = field.closest("label").dataset.of;
      const asked = kind === "damping" ? damped && DAMPED[set.damping].includes(field.name) : !kind || uses.includes(kind);
      field.closest("label").hidden = !asked;
      field.nextElementSibling.textContent = short(+field.value);
    }
    by("damping").closest("label").hidden = !damped;
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
    shown();
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
    step: () => { go(false); advance(); record(); shown(); },
    again: () => { restart(); shown(); },
    draw: () => { by("seed").value = (+by("seed").value + 1) % 1000; labels(); restart(); shown(); },
    copy: async () => {
      go(false);
      address();
      try {
        await navigator.clipboard.writeText(location.href);
        say("The address is copied: it holds what you see.");
      } catch {
        say("The address above holds what you see; the browser does not let this page copy it.");
      }
    },
  };
  for (const [name, task] of Object.entries(press)) by(name).addEventListener("click", task);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => {
    labels();
    if (["system", "integrator", "n", "seed"].includes(target.name)) restart();
    else if (!["speed", "chosen"].includes(target.name)) rebuild();
    shown();
  });

  // --- the address: settings always, positions and momenta while nothing runs

  /** Single precision, as text that an address may hold: numbers of the state, then x, y, and x of the first order. */
  const packed = () => {
    const [one, two] = runs, head = [one.k, one.t, two.t, one.evaluations, two.evaluations];
    const bytes = new Uint8Array(Float32Array.from([...head, ...one.x, ...one.y, ...two.x]).buffer);
    return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  };
  const unpacked = (text) => {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    const all = new Float32Array(bytes.buffer), [k, t, t1, calls, calls1] = all, size = 2 * settings().n;
    const sane = all.length === 5 + 3 * size && all.every((value) => Math.abs(value) < 1e3 * TOO_FAR);
    if (!sane || Math.min(t, t1) < 1) throw new RangeError("not a state of these settings");
    const [x, y, first] = [0, 1, 2].map((i) => all.slice(5 + i * size, 5 + (i + 1) * size));
    return { clocks: [{ k, t, evaluations: calls }, { k, t: t1, evaluations: calls1 }], x, y, first };
  };
  const address = () => {
    const words = new URLSearchParams(Object.entries(settings()).map(([name, value]) => [name, `${value}`]));
    if (!running && runs[0].k + (records[0].states.length - 1) > 0) words.set("state", packed());
    history.replaceState(null, "", `#${words}`);
  };
  /** What an address says, as far as it can be meant; the fields themselves keep values in their ranges. */
  const read = () => {
    const words = new URLSearchParams(location.hash.slice(1)), left = [];
    for (const field of [by("system"), ...controls]) { // the system first: it sets limits
      const word = words.get(field.name), before = field.value;
      if (word === null) continue;
      field.value = word;
      if (field.type === "range" ? !Number.isFinite(+word) || word === "" : field.value !== word) {
        field.value = before;
        left.push(field.name);
      }
      labels();
    }
    let from = null;
    try {
      if (words.get("state")) from = unpacked(words.get("state"));
    } catch {
      left.push("state");
    }
    labels();
    restart(from);
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
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches && !location.hash.includes("state=")) go(true);

  /** Where a particle is on the screen. */
  const place = (i) => {
    const { left, top } = pens["view-0"].canvas.getBoundingClientRect(), [u, v] = seen(0, i);
    return [left + u, top + v];
  };
  return { settings, described, place, timings, get runs() { return runs; } };
})();
