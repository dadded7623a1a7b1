// The reliability diagram: what the model predicts against what people labelled, in bins.

import { Chart } from "./chart.js";
import { find, format } from "./common.js";
import { fillTable } from "./tables.js";

const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

export class Reliability {
  constructor(figure) {
    this.svg = find("svg", figure);
    this.note = find(".note", figure);
    this.table = find("table", figure);
  }

  // `evaluation` is the response of `/evaluate`; `scale` is [lowest, highest] label.
  show(evaluation, scale, calibration) {
    const { kind, metric } = evaluation;
    const checked = evaluation.calibration;
    const observed = kind === "probability"
      ? { low: 0, high: 1, label: "share of matches", format: percent }
      : axisOfScale(scale, "mean label");
    const predicted = checked && kind === "probability"
      ? { ...observed, label: "predicted probability" }
      : checked && axisOfScale(scale, "predicted rating");
    const bins = (checked ?? evaluation).bins.map((bin) => ({
      predicted: checked ? fromShare(bin.predicted, predicted) : bin.predicted,
      observed: fromShare(bin.observed, observed),
      pairs: bin.pairs,
    }));
    const scores = bins.map((bin) => bin.predicted);
    const x = predicted ||
      { low: Math.min(...scores), high: Math.max(...scores), label: `mean score, ${metric}`, format: (v) => format(v, 2) };
    this.draw(bins, x, observed, Boolean(checked));
    this.note.textContent = checked
      ? describeError(checked, scale)
      : `${describeMissing(evaluation, scale, calibration)} Points show the labels by score of ${metric}.`;
    const digits = kind === "probability" ? 3 : 2;
    const row = (bin) =>
      [format(bin.predicted, checked ? digits : 3), format(bin.observed, digits), bin.pairs.toLocaleString("en")];
    fillTable(this.table, [x.label, observed.label, "pairs"], bins.map(row));
  }

  draw(bins, x, y, diagonal) {
    const chart = new Chart(this.svg, x, y, `Reliability diagram: ${y.label} by ${x.label}, in ${bins.length} bins.`);
    if (diagonal) chart.line([[x.low, y.low], [x.high, y.high]], "diagonal");
    const points = bins.map((bin) => [bin.predicted, bin.observed]);
    chart.line(points, "curve");
    chart.dots(points, "dot");
  }
}

const fromShare = (share, { low, high }) => low + share * (high - low);

function axisOfScale([low, high], label) {
  const digits = high - low > 10 ? 0 : 1;
  return { low, high, label, format: (value) => format(value, digits) };
}

function describeError({ kind, error }, [low, high]) {
  const size = kind === "probability" ? `${(100 * error).toFixed(1)} percentage points` : format(error * (high - low), 2);
  return `On these pairs, the model's ${kind} is off by ${size} on average. Points on the diagonal are exact.`;
}

// Why the model's calibration cannot be compared with the labels.
function describeMissing({ kind, metric }, scale, calibration) {
  if (!calibration) return "The model has no calibration.";
  const comparable = calibration.kind === kind && String(calibration.scale) === String(scale);
  if (comparable && calibration.metric !== metric) {
    return `The model's ${kind} is fitted on ${calibration.metric}: choose that metric to compare it with the labels.`;
  }
  return `The model gives a ${calibration.unit}: it cannot be compared with these labels.`;
}
