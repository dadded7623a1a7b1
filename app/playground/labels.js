// Labelled pairs: two sentences and a label, 0 or 1 or a rating, from a CSV or TSV file.

import { characters } from "./common.js";
import { parseTable } from "./csv.js";
import { UserError } from "./errors.js";

const MAX_PAIRS = 100_000; // of `/evaluate`
const MAX_BYTES = 200_000_000;
const MAX_PROBLEMS = 5; // rows named in an error
const COLUMNS = [["a", "b", "label"], ["sentence1", "sentence2", "label"]];
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const BOOLEANS = { true: 1, false: 0 };

const count = (number) => number.toLocaleString("en");
const isBinary = (label) => label === 0 || label === 1;

// Read a file: { name, a, b, labels, lines, binary, booleans, columns, separator }, where `columns` are
// the positions of a, b and label. Raises a UserError that names invalid rows.
export async function readPairs(file, maxCharacters) {
  if (file.size > MAX_BYTES) {
    throw new UserError(`${file.name} is larger than ${count(MAX_BYTES / 1e6)} MB: use a part of it.`);
  }
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch (error) {
    const encoding = error instanceof TypeError;
    throw new UserError(encoding
      ? `${file.name} is not UTF-8 text: save it as CSV in UTF-8.`
      : `${file.name} cannot be read: choose it again.`);
  }
  return parsePairs(file.name, text, maxCharacters);
}

function parsePairs(name, text, maxCharacters) {
  const header = text.split(/[\r\n]/, 1)[0];
  const separator = header.includes("\t") ? "\t" : ",";
  const rows = parseTable(text, separator);
  const first = rows.next().value?.fields ?? [];
  const columns = findColumns(name, first);
  const pairs = { name, columns, separator, a: [], b: [], labels: [], lines: [], booleans: false };
  const problems = [];
  for (const { line, fields } of rows) {
    const problem = addRow(pairs, line, fields, columns, first.length, maxCharacters);
    if (problem) problems.push(`line ${count(line)}: ${problem}`);
    if (pairs.a.length > MAX_PAIRS) {
      throw new UserError(`${name} has more than ${count(MAX_PAIRS)} pairs: use a sample of them.`);
    }
  }
  if (problems.length) throw new UserError(describeProblems(name, problems));
  if (!pairs.a.length) throw new UserError(`${name} has a header, but no pairs.`);
  return { ...pairs, binary: pairs.labels.every(isBinary) };
}

function findColumns(name, header) {
  const names = header.map((field) => field.trim().toLowerCase());
  const once = (column) => names.indexOf(column) >= 0 && names.indexOf(column) === names.lastIndexOf(column);
  const columns = COLUMNS.find((candidates) => candidates.every(once));
  if (columns) return columns.map((column) => names.indexOf(column));
  const found = header.length ? `its first line is “${header.join(", ").slice(0, 100)}”` : "it is empty";
  throw new UserError(`${name} needs a header with the columns a, b, label or sentence1, sentence2, label; ${found}.`);
}

// Add a row to `pairs`; return what is wrong with it, if anything.
function addRow(pairs, line, fields, columns, width, maxCharacters) {
  if (fields.length !== width) return `expected ${width} columns, found ${fields.length}`;
  const [a, b, value] = columns.map((column) => fields[column]);
  for (const [side, text] of [["first", a], ["second", b]]) {
    if (!text.trim()) return `the ${side} sentence is empty`;
    if (text.length > maxCharacters && characters(text).length > maxCharacters) {
      const length = count(characters(text).length);
      return `the ${side} sentence has ${length} characters, more than the server's ${count(maxCharacters)}`;
    }
  }
  const label = parseLabel(value);
  if (!Number.isFinite(label)) return `label “${value.trim().slice(0, 40)}” is not a number`;
  pairs.a.push(a);
  pairs.b.push(b);
  pairs.labels.push(label);
  pairs.lines.push(line);
  pairs.booleans ||= Object.hasOwn(BOOLEANS, value.trim().toLowerCase());
  return null;
}

function parseLabel(text) {
  const trimmed = text.trim().toLowerCase();
  if (Object.hasOwn(BOOLEANS, trimmed)) return BOOLEANS[trimmed];
  return NUMBER.test(trimmed) ? Number(trimmed) : NaN;
}

function describeProblems(name, problems) {
  const rows = problems.length === 1 ? "1 row" : `${count(problems.length)} rows`;
  const more = problems.length > MAX_PROBLEMS ? "; …" : "";
  return `${name}: ${rows} cannot be used: ${problems.slice(0, MAX_PROBLEMS).join("; ")}${more}.`;
}

// Raise a UserError unless all labels are within [low, high].
export function checkScale({ name, labels, lines }, [low, high]) {
  if (!(low < high)) throw new UserError("The scale's lowest label must be below its highest label.");
  const outside = labels.findIndex((label) => label < low || label > high);
  if (outside < 0) return;
  const where = `${name}, line ${count(lines[outside])}`;
  throw new UserError(`${where}: label ${labels[outside]} is outside the scale from ${low} to ${high}.`);
}
