// Commands that repeat the requests of the page: curl for a shell, and Python with httpx.

import { hasKey } from "./api.js";
import { copy, find, toast } from "./common.js";

const MAX_COMMAND = 100_000; // characters; Linux limits an argument to 128 KiB
const MAX_LINE = 88; // characters of a line of Python
const INDENT = "    ";

// The absolute URL of an endpoint.
export const endpoint = (path) => new URL(path, location.href.split("#")[0]).href;

// The `model` field of a request: only for models that are not the server's default.
export const modelField = ({ model, models }) => (model === models[0] ? {} : { model });

// Quote an argument for a shell, if it needs that.
export function quote(text) {
  return /^[\w.:/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

// A curl command. JSON escapes replace the two characters that some shell reads within single quotes.
export function curl(path, body) {
  const json = JSON.stringify(body).replaceAll("\\\\", "\\u005c").replaceAll("'", "\\u0027");
  const key = hasKey() ? ` -H "authorization: Bearer $LATTEMIX_API_KEY"` : "";
  return `curl ${quote(endpoint(path))}${key} -H 'content-type: application/json' -d '${json}'`;
}

// A Python program that prints the response.
export function python(path, body) {
  const headers = hasKey() ? `${INDENT}headers=${AUTHORIZATION},\n` : "";
  return `${imports()}
response = httpx.post(
${INDENT}${literal(endpoint(path))},
${headers}${INDENT}json=${literal(body, INDENT)},
${INDENT}timeout=60,
)
response.raise_for_status()
print(response.json())
`;
}

const AUTHORIZATION = `{"authorization": f"Bearer {os.environ['LATTEMIX_API_KEY']}"}`;

// Import statements: modules of the standard library, and httpx.
function imports(...modules) {
  const standard = [...modules, ...(hasKey() ? ["os"] : [])].map((name) => `import ${name}\n`).join("");
  return `${standard}${standard && "\n"}import httpx  # pip install httpx\n`;
}

// A Python literal of a JSON value; broken into lines if it is long.
export function literal(value, indent = "") {
  if (typeof value === "string") return JSON.stringify(value); // Python has all of JSON's escapes
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return String(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const items = (deeper) => Array.isArray(value)
    ? value.map((item) => literal(item, deeper))
    : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${literal(item, deeper)}`);
  const line = `${open}${items(indent).join(", ")}${close}`;
  if (line.length + indent.length <= MAX_LINE && !line.includes("\n")) return line;
  const deeper = indent + INDENT;
  return `${open}\n${items(deeper).map((item) => `${deeper}${item},\n`).join("")}${indent}${close}`;
}

// Fields that follow others in a Python dictionary.
const otherFields = (fields) => Object.entries(fields).map(([name, value]) => `, "${name}": ${literal(value)}`).join("");

// A Python program that scores the pairs of a file and prints what `/evaluate` returns for them.
// `file` is { name, columns, separator, booleans }; `model` is the `model` field, if needed. Ratings
// have a `scale`, and a lowest rating of a `match`.
export function pythonOfFile(file, { metric, model, scale, match, batch }) {
  const reader = file.separator === "\t" ? `file, delimiter="\\t", quoting=csv.QUOTE_NONE` : "file";
  const [a, b, label] = file.columns.map((column) => `row[${column}]`);
  const value = file.booleans ? `{"true": 1, "false": 0}.get(${label}.strip().lower(), ${label})` : label;
  const chosen = otherFields({ metric, ...model });
  const matches = match === null ? "" : `
matches = [int(label >= ${match}) for label in labels]
print(post("evaluate", {"scores": scores, "labels": matches${chosen}}))`;
  return `${imports("csv")}
with open(${literal(file.name)}, encoding="utf-8-sig", newline="") as file:
    _, *rows = [row for row in csv.reader(${reader}) if row]
pairs = [[${a}, ${b}] for row in rows]
labels = [float(${value}) for row in rows]


def post(path, body):
    url = ${literal(endpoint("."))} + path
    response = httpx.post(url, json=body, timeout=60${hasKey() ? `, headers=${AUTHORIZATION}` : ""})
    response.raise_for_status()
    return response.json()


scores = []
for start in range(0, len(pairs), ${batch}):
    body = {"pairs": pairs[start : start + ${batch}]${otherFields({ metrics: [metric], ...model })}}
    scores += [row[${literal(metric)}] for row in post("similarity", body)["similarities"]]
print(post("evaluate", {"scores": scores, "labels": labels${otherFields({ metric, ...model, ...(scale && { scale }) })}}))${matches}
`;
}

// Connect the two buttons of an element. `commands()` returns { curl(), python() }; null if there is
// nothing to repeat.
export function connect(element, commands) {
  for (const [name, label] of [["curl", "curl command"], ["python", "Python program"]]) {
    find(`.${name}`, element).addEventListener("click", () => {
      const text = commands()?.[name]();
      if (!text) toast("There is nothing to copy yet.");
      else if (name === "curl" && text.length > MAX_COMMAND) {
        toast("The input is too long for a command: copy as Python.");
      } else copy(text, `Copied the ${label}.`);
    });
  }
}

// The commands of a single request.
export const commandsOf = (path, body) => ({ curl: () => curl(path, body), python: () => python(path, body) });
