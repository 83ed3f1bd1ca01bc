"use strict";
// The mathematics of the playground: `sympformer.flows` for particles in the plane, in plain JavaScript.
//
//     x' = velocity(x, y)        y' = force(x, y) - alpha(t) y
//
// Positions x and momenta y are Float64Arrays of length 2 N: x_i = (x[2i], x[2i+1]). Matrices are [m11, m12, m21, m22].
// A test holds every system with every integrator equal to the Python package. There is no causal mask here.
const Flows = (() => {
  // --- vectors: new arrays, so that a state can be kept

  /** u + a v. */
  const plus = (u, a, v) => u.map((value, k) => value + a * v[k]);
  /** a u. */
  const scaled = (a, u) => u.map((value) => a * value);
  /** w_i u_i, one weight a particle. */
  const weighted = (w, u) => u.map((value, k) => value * w[k >> 1]);
  /** sum_i <u_i, v_i>. */
  const inner = (u, v) => u.reduce((sum, value, k) => sum + value * v[k], 0);
  /** <u_i, v_i>, one number a particle. */
  const rowInner = (u, v) => Float64Array.from({ length: u.length / 2 }, (_, i) =>
    u[2 * i] * v[2 * i] + u[2 * i + 1] * v[2 * i + 1]);
  /** M x_i, row by row. */
  const times = ([m11, m12, m21, m22], x) => {
    const out = new Float64Array(x.length);
    for (let k = 0; k < x.length; k += 2) {
      out[k] = m11 * x[k] + m12 * x[k + 1];
      out[k + 1] = m21 * x[k] + m22 * x[k + 1];
    }
    return out;
  };
  /** f(2i, 2j) for all pairs of N particles, as one array of N rows. */
  const pairs = (N, f) => Float64Array.from({ length: N * N }, (_, k) => f(2 * Math.floor(k / N), 2 * (k % N), k));
  /** sum_j K_ij v_j, K as one array of N rows. */
  const sums = (K, v) => {
    const N = v.length / 2, out = new Float64Array(2 * N);
    for (let i = 0; i < N; i++) {
      for (let j = 0; j < N; j++) {
        out[2 * i] += K[i * N + j] * v[2 * j];
        out[2 * i + 1] += K[i * N + j] * v[2 * j + 1];
      }
    }
    return out;
  };
  /** Q diag(first, second) Q' with the first eigenvector at an angle to the first axis. */
  const symmetric = (first, second, angle) => {
    const c = Math.cos(angle), s = Math.sin(angle), off = (first - second) * c * s;
    return [first * c * c + second * s * s, off, off, first * s * s + second * c * c];
  };

  // --- systems: at(x) evaluates the kernel once and gives the field there, which may be asked at any momenta

  /**
   * Softmax attention, A symmetric, B symmetric positive definite.
   *
   *     s_ij = x_i' A x_j      z_i = 1/N sum_j exp(s_ij)      rho_i = <y_i, B y_i> / z_i^2
   *     velocity_i = B y_i / z_i
   *     force_i = 1/N sum_j exp(s_ij) (rho_i/2 + 1) A x_j                  form "own"
   *     force_i = 1/N sum_j exp(s_ij) (rho_i/2 + rho_j/2 + 1) A x_j        form "paper"
   *     H = 1/2 sum_i <y_i, B y_i>/z_i - 1/2 sum_i z_i
   */
  const softmax = (form) => ({ A, B }) => {
    /** P_ij = softmax_j(s_ij), and log z_i. */
    const kernel = (x, Ax) => {
      const N = x.length / 2, P = pairs(N, (i, j) => x[i] * Ax[j] + x[i + 1] * Ax[j + 1]);
      const logZ = new Float64Array(N).map((_, i) => {
        const row = P.subarray(i * N, i * N + N), largest = row.reduce((one, other) => Math.max(one, other));
        row.forEach((value, j) => { row[j] = Math.exp(value - largest); });
        const sum = row.reduce((one, other) => one + other);
        row.forEach((value, j) => { row[j] = value / sum; });
        return largest + Math.log(sum / N);
      });
      return { P, logZ };
    };
    const heights = (x) => kernel(x, times(A, x)).logZ.map(Math.exp);
    return {
      at(x) {
        const Ax = times(A, x), { P, logZ } = kernel(x, Ax), PAx = sums(P, Ax), z = logZ.map(Math.exp);
        return {
          velocity: (y) => weighted(z.map((value) => 1 / value), times(B, y)),
          force(y) {
            const half = rowInner(y, times(B, y)).map((value, i) => value / (2 * z[i] * z[i])); // rho / 2
            const own = weighted(half.map((value) => value + 1), PAx);
            return weighted(z, form === "paper" ? plus(own, 1, sums(P, weighted(half, Ax))) : own);
          },
        };
      },
      potential: (x) => -heights(x).reduce((sum, value) => sum + value, 0) / 2,
      bound: null,
    };
  };

  /**
   * Linear attention, A symmetric positive definite, V = -B. One state S = sum_j x_j y_j' serves both:
   *
   *     velocity_i = S' A x_i / N        force_i = V x_i - A S y_i / N
   *     H = 1/2 sum_i <y_i, velocity_i> - 1/2 sum_i x_i' V x_i
   */
  const linear = ({ A, B }) => {
    const V = scaled(-1, B);
    const state = (x, y) => { // S / N
      const S = [0, 0, 0, 0];
      for (let k = 0; k < x.length; k += 2) {
        for (let m = 0; m < 4; m++) S[m] += 2 * x[k + (m >> 1)] * y[k + (m & 1)] / x.length;
      }
      return S;
    };
    const at = (x) => {
      const Ax = times(A, x), Vx = times(V, x);
      const velocity = (y) => {
        const [s11, s12, s21, s22] = state(x, y);
        return times([s11, s21, s12, s22], Ax);
      };
      return { velocity, force: (y) => plus(Vx, -1, times(A, times(state(x, y), y))) };
    };
    return { at, potential: (x) => -inner(x, times(V, x)) / 2, bound: 0 };
  };

  /** Independent oscillators: H = 1/2 |y|^2 + 1/2 sum_i x_i' A x_i, A symmetric positive definite. */
  const quadratic = ({ A }) => ({
    at(x) {
      const pull = scaled(-1, times(A, x));
      return { velocity: (y) => y, force: () => pull };
    },
    potential: (x) => inner(x, times(A, x)) / 2, bound: 0,
  });

  /**
   * The Stein flow of a curved valley with the Gaussian kernel k(x, y) = exp(-|x - y|^2 / (2 length^2)).
   *
   *     U(x) = l_1/2 u_1^2 + l_2/2 (u_2 - (u_1^2 - 1)/2)^2,  u = Q'x,  valley = [l_1, l_2, angle of Q]
   *     velocity_i = 1/N sum_j k_ij y_j        force_i = 1/N sum_j <y_i, y_j> k_ij (x_i - x_j)/length^2 - grad U(x_i)
   *     H = 1/2 sum_i <y_i, velocity_i> + sum_i U(x_i)
   */
  const stein = ({ valley: [soft, stiff, angle], length }) => {
    const c = Math.cos(angle), s = Math.sin(angle);
    const kernel = (x) => pairs(x.length / 2, (i, j) => // k_ij / N
      Math.exp(-((x[i] - x[j]) ** 2 + (x[i + 1] - x[j + 1]) ** 2) / (2 * length * length)) / (x.length / 2));
    const slope = (x) => {
      const u = times([c, s, -s, c], x), out = new Float64Array(x.length);
      for (let k = 0; k < x.length; k += 2) {
        out[k + 1] = stiff * (u[k + 1] - (u[k] * u[k] - 1) / 2);
        out[k] = soft * u[k] - u[k] * out[k + 1];
      }
      return times([c, -s, s, c], out);
    };
    return {
      at(x) {
        const K = kernel(x), gradient = slope(x);
        return {
          velocity: (y) => sums(K, y),
          force(y) { // with W_ij = <y_i, y_j> k_ij / (N length^2): x_i sum_j W_ij - sum_j W_ij x_j
            const N = x.length / 2;
            const W = pairs(N, (i, j, k) => K[k] * (y[i] * y[j] + y[i + 1] * y[j + 1]) / (length * length));
            const total = sums(W, new Float64Array(2 * N).fill(1));
            return plus(plus(x.map((value, k) => value * total[k]), -1, sums(W, x)), -1, gradient);
          },
        };
      },
      potential: (x) => times([c, s, -s, c], x).reduce((sum, value, k, u) =>
        sum + (k % 2 ? stiff * (value - (u[k - 1] ** 2 - 1) / 2) ** 2 : soft * value ** 2) / 2, 0),
      bound: 0,
    };
  };

  // --- damping

  /** Nodes and weights of Gauss and Legendre on [0, 1]: Newton's method on the Legendre polynomial P_n. */
  const gaussLegendre = (n) => Array.from({ length: n }, (_, i) => {
    let x = Math.cos(Math.PI * (i + 0.75) / (n + 0.5)), slope = 0;
    for (let round = 0; round < 8; round++) {
      let p = 1, before = 0;
      for (let k = 1; k <= n; k++) [p, before] = [((2 * k - 1) * x * p - (k - 1) * before) / k, p];
      slope = n * (x * p - before) / (x * x - 1);
      x -= p / slope;
    }
    return [(x + 1) / 2, 1 / ((1 - x * x) * slope * slope)];
  });
  const NODES = gaussLegendre(40);

  /**
   * alpha(t) = r/t + m from t0. sigma(t, h) is what a free momentum keeps over a step, weight(t, h) what a constant
   * force adds: integral_0^h (1 - u/T)^r exp(-m u) du with T = t + h, taken in q = -log(1 - u/T).
   */
  const logLinear = ({ r, m, t0 }) => ({
    t0,
    alpha: (t) => (r > 0 ? r / t : 0) + m,
    sigma: (t, h) => Math.exp(-((r > 0 ? r * Math.log1p(h / t) : 0) + m * h)),
    weight(t, h) {
      if (r === 0) return m * h < 1e-12 ? h : -Math.expm1(-m * h) / m;
      const T = t + h, end = Math.log1p(h / t);
      return NODES.reduce((sum, [node, share]) =>
        sum + share * end * T * Math.exp(-(r + 1) * end * node + m * T * Math.expm1(-end * node)), 0);
    },
  });

  // --- integrators: step(oracle, x, y, {k, t, h, damping}, history) -> [x+, y+, history+]

  /** Nesterov's (k-1)/(k+2), and 0 for the first step. */
  const nesterovFactor = (k) => Math.max(k - 1, 0) / (k + 2);
  /** x+ = x + h F(x, y)        y+ = zeta_1 y + zeta_2 G(x, y) */
  const euler = (prefactors) => (oracle, x, y, now) => {
    const field = oracle(x), [zeta1, zeta2] = prefactors(now);
    return [plus(x, now.h, field.velocity(y)), plus(scaled(zeta1, y), zeta2, field.force(y))];
  };
  /** 3/2 now - 1/2 before: steps are equal here. Without a past it is Euler's. */
  const extrapolated = (now, before) => (before ? now.map((value, k) => 1.5 * value - 0.5 * before[k]) : now);

  const integrators = {
    plain_euler: euler(({ k, h }) => [nesterovFactor(k), h]),
    presymp_euler: euler(({ t, h, damping }) => [1 - damping.alpha(t) * h, h]),
    /** y+ = sigma (y + h G(x, y))        x+ = x + h F(x, y+) */
    symplectic_euler(oracle, x, y, { t, h, damping }) {
      const field = oracle(x), next = scaled(damping.sigma(t, h), plus(y, h, field.force(y)));
      return [plus(x, h, field.velocity(next)), next];
    },
    exp_euler: euler(({ t, h, damping }) => [damping.sigma(t, h), damping.weight(t, h)]),
    /** Adams-Bashforth 2 on (F, G - alpha y). */
    ab2(oracle, x, y, { t, h, damping }, [before, slower] = []) {
      const field = oracle(x), velocity = field.velocity(y), slope = plus(field.force(y), -damping.alpha(t), y);
      return [plus(x, h, extrapolated(velocity, before)), plus(y, h, extrapolated(slope, slower)), [velocity, slope]];
    },
    /** The same on (x, e^eta y): y+ = sigma (y + h [3/2 G - 1/2 sigma_before G_before]). */
    etd_ab2(oracle, x, y, { t, h, damping }, [before, weaker] = []) {
      const field = oracle(x), velocity = field.velocity(y), force = field.force(y), sigma = damping.sigma(t, h);
      const next = scaled(sigma, plus(y, h, extrapolated(force, weaker)));
      return [plus(x, h, extrapolated(velocity, before)), next, [velocity, scaled(sigma, force)]];
    },
    /** The classical Runge-Kutta method on (F, G - alpha y). */
    rk4(oracle, x, y, { t, h, damping }) {
      const slopes = (share, [u, v] = [x, y]) => {
        const field = oracle(u);
        return [field.velocity(v), plus(field.force(v), -damping.alpha(t + share * h), v)];
      };
      const from = (share, [u, v]) => slopes(share, [plus(x, share * h, u), plus(y, share * h, v)]);
      const one = slopes(0), two = from(0.5, one), three = from(0.5, two), four = from(1, three);
      const total = (i) => one[i].map((value, k) => (value + 2 * two[i][k] + 2 * three[i][k] + four[i][k]) / 6);
      return [plus(x, h, total(0)), plus(y, h, total(1))];
    },
    /** x+ = x + h F(x, G(x, 0)): what a classical attention layer does. */
    gradient_flow(oracle, x, y, { h }) {
      const field = oracle(x);
      return [plus(x, h, field.velocity(field.force(scaled(0, y)))), y];
    },
    /** u = x + (k-1)/(k+2) h y        x+ = u - h^2 grad F(u)        y+ = (x+ - x)/h, in Euclidean space. */
    nesterov(oracle, x, y, { k, h }) {
      const u = plus(x, nesterovFactor(k) * h, y), next = plus(u, h * h, oracle(u).force(scaled(0, y)));
      return [next, scaled(1 / h, plus(next, -1, x))];
    },
  };

  const systems = { softmax_own: softmax("own"), softmax_paper: softmax("paper"), linear, quadratic, stein };

  /** A run from x0, at rest unless y0 says otherwise. `advance()` takes one step; `evaluations` counts kernel calls. */
  const run = ({ system, integrator, damping, h, x0, y0 }) => {
    const flow = systems[system.name](system), schedule = logLinear(damping);
    flow.kinetic = (x, y) => inner(y, flow.at(x).velocity(y)) / 2;
    const state = {
      flow, x: Float64Array.from(x0), y: y0 ? Float64Array.from(y0) : new Float64Array(x0.length),
      k: 0, t: schedule.t0, evaluations: 0, history: undefined,
    };
    const oracle = (x) => { state.evaluations += 1; return flow.at(x); };
    state.advance = () => {
      const now = { k: state.k, t: state.t, h, damping: schedule };
      [state.x, state.y, state.history] = integrators[integrator](oracle, state.x, state.y, now, state.history);
      state.k += 1;
      state.t += h;
    };
    return state;
  };

  return { systems, integrators, logLinear, symmetric, run };
})();
