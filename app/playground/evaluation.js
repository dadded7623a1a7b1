// The results of labelled pairs: agreement, reliability, a threshold, and the commands that use it.

import { copy, find, format } from "./common.js";
import { Reliability } from "./reliability.js";
import { curl, endpoint, modelField, quote } from "./snippets.js";
import { fillTable, withNote } from "./tables.js";
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
    this.comparison = find("#use-evaluate", results);
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
    this.showCommands(pairs.name, scale);
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
    const body = { inputs: ["…", "…"], ...modelField(this.info), metric: this.metric, threshold: score };
    find("code", this.request).textContent = curl("matrix", body);
  }

  showCommands(name, scale) {
    const { model, models } = this.info;
    const file = quote(name.startsWith("-") ? `./${name}` : name); // else an option
    const ratings = scale ? ` --scale=${scale.join(",")}` : "";
    const option = model === "default" ? "" : ` --model ${quote(model)}`;
    find("code", this.command).textContent = `lattemix calibrate ${file}${ratings}${option} --out NAME`;
    const several = models.length > 1 ? ` --models ${quote(models.join(","))}` : "";
    find("code", this.comparison).textContent =
      `lattemix evaluate ${file}${ratings}${several} --url ${quote(endpoint(".").replace(/\/$/, ""))}`;
  }
}
