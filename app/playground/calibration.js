// What scores mean: the map of a model's calibration, and how its values are written.

// The annotation scale of the STS benchmark.
const STS = [
  "different topics",
  "same topic only",
  "some details in common",
  "same gist, important details differ",
  "same meaning, small details differ",
  "same meaning",
];

export class Calibration {
  constructor({ metric, kind, scale, scores, values, about }) {
    Object.assign(this, { metric, kind, scale, scores, values, about });
    const [low, high] = scale;
    this.words = kind === "rating" && low === 0 && high === 5 ? STS : null;
    this.digits = high - low > 20 ? 0 : 1;
  }

  // The calibration of a model, from the response of `/info`; null if it has none.
  static of(info) {
    return info.calibration ? new Calibration(info.calibration) : null;
  }

  // The probability or rating of a score.
  value(score) {
    return interpolate(score, this.scores, this.values);
  }

  // The score of a probability or rating.
  score(value) {
    return interpolate(value, this.values, this.scores);
  }

  // Position of a value on the scale, from 0 to 1.
  share(value) {
    const [low, high] = this.scale;
    return (value - low) / (high - low);
  }

  // "rating from 0 to 5" or "probability of a match", for labels.
  get unit() {
    if (this.kind === "probability") return "probability of a match";
    return `rating from ${this.scale.join(" to ")}`;
  }

  format(value, digits = this.digits) {
    if (this.kind === "probability") return formatPercent(value);
    const [low, high] = this.scale;
    const number = value.toFixed(digits).replace("-", "−");
    return low === 0 ? `${number} of ${high}` : `${number} on a scale from ${low} to ${high}`;
  }

  // The value in words; empty if the scale has none.
  describe(value) {
    if (this.kind === "probability") return "likely a match";
    return this.words?.[Math.round(value)] ?? "";
  }
}

// Never "0 %" or "100 %": no calibration is that certain.
function formatPercent(share) {
  if (share < 0.01) return "under 1\u00a0%";
  if (share > 0.99) return "over 99\u00a0%";
  return `${Math.round(100 * share)}\u00a0%`;
}

// Piecewise linear interpolation between increasing knots; constant beyond them.
function interpolate(x, knots, values) {
  const last = knots.length - 1;
  if (x <= knots[0]) return values[0];
  if (x >= knots[last]) return values[last];
  let [low, high] = [0, last];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (knots[middle] <= x) low = middle;
    else high = middle;
  }
  const share = (x - knots[low]) / (knots[high] - knots[low]);
  return values[low] + share * (values[high] - values[low]);
}
