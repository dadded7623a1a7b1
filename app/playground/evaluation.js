// The results of labelled pairs: agreement, reliability, a threshold, and the commands that use it.

import { hasKey } from "./api.js";
import { copy, fillTable, find, format, withNote } from "./common.js";
import { Reliability } from "./reliability.js";
import { ThresholdChoice } from "./threshold.js";

const MEASURES = {
  auc: ["AUC", "chance that a match scores higher than another pair"],
  average_precision: ["Average precision", "mean precision over all thresholds"],
  spearman: ["Spearman", "rank correlation of scores and labels"],
};

export class Evaluation {
  constructor(results) {
    this.summary = find("#labelled-summary", results);
    this.agreement = find("#agreement", results);
    this.reliability = new Reliability(find("#reliability", results));
    this.choice = find("#threshold-choice", results);
    this.problem = find("#threshold-problem", results);
    this.threshold = new ThresholdChoice(this.choice, (score) => this.showRequest(score));
    this.request = find("#use-threshold", results);
    this.command = find("#use-calibration", results);
    for (const block of results.querySelectorAll(".command")) {
      find("button", block).addEventListener("click", () => copy(find("code", block).textContent, "Command copied."));
    }
  }

  // `evaluation` is the response of `/evaluate` for the labels, and `binary` that for the matches;
  // null, with a `problem`, if there is none.
  show({ evaluation, binary, problem, scale, match, matches, pairs, info, calibration }) {
    const { metric } = evaluation;
    Object.assign(this, { info, metric });
    this.showSummary(pairs, matches, match);
    this.showAgreement({ ...binary?.agreement, spearman: evaluation.agreement.spearman });
    this.reliability.show(evaluation, scale ?? [0, 1], calibration);
    this.problem.textContent = problem;
    this.choice.hidden = this.request.hidden = !binary;
    this.showCommand(pairs.name, scale);
    if (binary) this.threshold.show(binary.curve, metric, calibration?.metric === metric ? calibration : null);
  }

  showSummary({ name, labels }, matches, match) {
    const share = matches.reduce((total, value) => total + value, 0) / labels.length;
    const rule = match === null ? "" : ` (label ${match} or more)`;
    this.summary.textContent = `${name}: ${labels.length.toLocaleString("en")} pairs, ` +
      `${(100 * share).toFixed(1)}\u00a0% of them matches${rule}. Scores of ${this.metric}, model ${this.info.model}.`;
  }

  showAgreement(agreement) {
    const rows = Object.entries(MEASURES).filter(([name]) => agreement[name]).map(([name, [label, meaning]]) => {
      const { value, low, high } = agreement[name];
      const interval = low === null ? "unknown" : `${format(low)} to ${format(high)}`;
      return [withNote(label, meaning), format(value), interval];
    });
    fillTable(this.agreement, ["measure", "value", "95\u00a0% interval"], rows);
  }

  showRequest(score) {
    const url = new URL("matrix", location.href.split("#")[0]).href;
    const key = hasKey() ? ` -H "authorization: Bearer $KEY"` : "";
    const body = { inputs: ["…", "…"], ...this.modelField(), metric: this.metric, threshold: score };
    find("code", this.request).textContent =
      `curl ${url}${key} -H 'content-type: application/json' -d '${JSON.stringify(body)}'`;
  }

  showCommand(name, scale) {
    const { model } = this.info;
    const options = (scale ? ` --scale=${scale.join(",")}` : "") + (model === "default" ? "" : ` --model ${quote(model)}`);
    find("code", this.command).textContent = `lattemix calibrate ${quote(name)}${options} --out NAME`;
  }

  // Named only where it is not the server's default.
  modelField() {
    const { model, models } = this.info;
    return model === models[0] ? {} : { model };
  }
}

// Quote an argument for a shell, if it needs that.
function quote(text) {
  const name = text.startsWith("-") ? `./${text}` : text; // else an option
  return /^[\w./-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
}
