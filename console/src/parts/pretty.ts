/** JSON as people read it. */

export const JSON_TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

// Deeper levels are not set in further: of a megabyte of brackets the spaces would be a terabyte.
const INDENTED_LEVELS_MAX = 20;

/** The same JSON with line breaks; every digit of every number stays as it is written. */
export function prettyJson(text: string): string {
  let depth = 0;
  let result = "";
  let before = "";
  const line = () => `\n${"  ".repeat(Math.max(0, Math.min(depth, INDENTED_LEVELS_MAX)))}`;
  for (const [token] of text.matchAll(JSON_TOKEN)) {
    if (token === "}" || token === "]") {
      depth--;
      if (before !== "{" && before !== "[") result += line();
    } else if (before === "{" || before === "[" || before === ",") result += line();
    result += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth++;
    before = token;
  }
  return result;
}
