/** JSON checked by a JSON Schema, drafts 4 to 2020-12. `format` is not checked, as in most registries. */

import { t } from "../texts";
import { write } from "../api/json";

type Schema = boolean | { [keyword: string]: unknown };

const DEPTH_MAX = 100;

interface Place {
  schema: Schema;
  /** The document that local references of the schema mean. */
  root: Schema;
}

export class JsonSchema {
  private readonly root: Schema;
  private readonly byName = new Map<string, Schema>();

  constructor(text: string, references: { name: string; text: string }[] = []) {
    this.root = JSON.parse(text) as Schema;
    this.name("", this.root);
    for (const one of references) this.name(one.name, JSON.parse(one.text) as Schema);
  }

  /** Raises with the path to what does not fit. */
  check(value: unknown): void {
    const problem = this.problem({ schema: this.root, root: this.root }, value, "value", 0);
    if (problem) throw new Error(problem);
  }

  private name(name: string, schema: Schema): void {
    if (name) this.byName.set(name, schema);
    const id = typeof schema === "object" ? (schema["$id"] ?? schema["id"]) : undefined;
    if (typeof id === "string") this.byName.set(id.replace(/#$/, ""), schema);
  }

  private problem({ schema, root }: Place, value: unknown, path: string, depth: number): string | undefined {
    if (depth > DEPTH_MAX) return t.produce.tooDeep(path);
    if (typeof schema === "boolean") return schema ? undefined : t.produce.notAllowed(path);
    const inner = (one: unknown, item: unknown, at = path) => this.problem({ schema: one as Schema, root }, item, at, depth + 1);
    const reference = schema["$ref"];
    if (typeof reference === "string") {
      const found = this.problem(this.referred(reference, root), value, path, depth + 1);
      if (found) return found;
    }
    return typeProblem(schema, value, path) ?? combined(schema, value, path, inner) ?? membersProblem(schema, value, path, inner) ?? itemsProblem(schema, value, path, inner) ?? textProblem(schema, value, path) ?? numberProblem(schema, value, path);
  }

  private referred(reference: string, root: Schema): Place {
    const [name = "", pointer = ""] = reference.split("#");
    const target = name === "" ? root : (this.byName.get(name) ?? [...this.byName].find(([known]) => known.endsWith(`/${name}`))?.[1]);
    if (target === undefined) throw new Error(t.produce.noReference(reference));
    let schema: unknown = target;
    for (const part of pointer.split("/").slice(1)) {
      const key = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
      schema = schema !== null && typeof schema === "object" ? (schema as Record<string, unknown>)[key] : undefined;
    }
    if (schema === undefined) throw new Error(t.produce.noReference(reference));
    return { schema: schema as Schema, root: target };
  }
}

type Keywords = { [keyword: string]: unknown };
type Inner = (schema: unknown, value: unknown, path?: string) => string | undefined;

function typeProblem(schema: Keywords, value: unknown, path: string): string | undefined {
  const types = schema["type"] === undefined ? [] : [schema["type"]].flat();
  if (types.length > 0 && !types.some((type) => isOf(type, value))) return t.produce.wrongType(path, types.join(", "));
  const choices = schema["enum"] as unknown[] | undefined;
  if (choices && !choices.some((one) => isSame(one, value))) return t.produce.wrongType(path, choices.map((one) => write(one)).join(", "));
  if ("const" in schema && !isSame(schema["const"], value)) return t.produce.wrongType(path, write(schema["const"]));
  return undefined;
}

function isOf(type: unknown, value: unknown): boolean {
  if (type === "integer") return typeof value === "bigint" || Number.isInteger(value);
  if (type === "number") return typeof value === "bigint" || typeof value === "number";
  return type === (value === null ? "null" : Array.isArray(value) ? "array" : typeof value);
}

function isSame(one: unknown, other: unknown): boolean {
  return write(sorted(one)) === write(sorted(other));
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  return isObject(value) ? Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)).map(([name, item]) => [name, sorted(item)])) : value;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

function combined(schema: Keywords, value: unknown, path: string, inner: Inner): string | undefined {
  for (const one of (schema["allOf"] as unknown[] | undefined) ?? []) {
    const problem = inner(one, value);
    if (problem) return problem;
  }
  const any = schema["anyOf"] as unknown[] | undefined;
  if (any) {
    const problems = any.map((one) => inner(one, value));
    if (!problems.includes(undefined)) return problems.length === 1 ? problems[0] : t.produce.noneOf(path, problems.join(" "));
  }
  const one = schema["oneOf"] as unknown[] | undefined;
  if (one) {
    const problems = one.map((each) => inner(each, value));
    const fitting = problems.filter((each) => each === undefined).length;
    if (fitting === 0) return t.produce.noneOf(path, problems.join(" "));
    if (fitting > 1) return t.produce.severalOf(path, fitting);
  }
  if ("not" in schema && inner(schema["not"], value) === undefined) return t.produce.notAllowed(path);
  if (!("if" in schema)) return undefined;
  const branch = inner(schema["if"], value) === undefined ? schema["then"] : schema["else"];
  return branch === undefined ? undefined : inner(branch, value);
}

function membersProblem(schema: Keywords, value: unknown, path: string, inner: Inner): string | undefined {
  if (!isObject(value)) return undefined;
  const missing = ((schema["required"] as string[] | undefined) ?? []).find((name) => !Object.hasOwn(value, name));
  if (missing !== undefined) return t.produce.missingField(`${path}.${missing}`);
  const names = Object.keys(value);
  const count = outside(names.length, schema["minProperties"], schema["maxProperties"]);
  if (count) return t.produce.wrongSize(path, count);
  const properties = (schema["properties"] as Record<string, unknown> | undefined) ?? {};
  const patterns = Object.entries((schema["patternProperties"] as Record<string, unknown> | undefined) ?? {});
  const dependent = (schema["dependentRequired"] as Record<string, string[]> | undefined) ?? {};
  for (const name of names) {
    const at = `${path}.${name}`;
    const matching = patterns.filter(([pattern]) => new RegExp(pattern, "u").test(name)).map(([, one]) => one);
    if (Object.hasOwn(properties, name)) matching.push(properties[name]);
    else if (matching.length === 0 && schema["additionalProperties"] === false) return t.produce.unknownField(at);
    else if (matching.length === 0 && schema["additionalProperties"] !== undefined) matching.push(schema["additionalProperties"]);
    for (const one of matching) {
      const problem = inner(one, value[name], at);
      if (problem) return problem;
    }
    const problem = "propertyNames" in schema ? inner(schema["propertyNames"], name, at) : undefined;
    if (problem) return problem;
    const needed = Object.hasOwn(dependent, name) ? dependent[name]?.find((one) => !Object.hasOwn(value, one)) : undefined;
    if (needed !== undefined) return t.produce.missingField(`${path}.${needed}`);
  }
  return undefined;
}

function itemsProblem(schema: Keywords, value: unknown, path: string, inner: Inner): string | undefined {
  if (!Array.isArray(value)) return undefined;
  const count = outside(value.length, schema["minItems"], schema["maxItems"]);
  if (count) return t.produce.wrongSize(path, count);
  // Before 2020-12 a list in `items` is what `prefixItems` is now, and `additionalItems` is for the rest.
  const isOld = Array.isArray(schema["items"]);
  const first = (isOld ? schema["items"] : schema["prefixItems"] ?? []) as unknown[];
  const rest = isOld ? schema["additionalItems"] : schema["items"];
  for (const [at, item] of value.entries()) {
    const one = at < first.length ? first[at] : rest;
    const problem = one === undefined ? undefined : inner(one, item, `${path}[${at}]`);
    if (problem) return problem;
  }
  if (schema["uniqueItems"] === true && new Set(value.map((item) => write(sorted(item)))).size < value.length) return t.produce.notUnique(path);
  if ("contains" in schema && !value.some((item) => inner(schema["contains"], item) === undefined)) return t.produce.notAllowed(path);
  return undefined;
}

function textProblem(schema: Keywords, value: unknown, path: string): string | undefined {
  if (typeof value !== "string") return undefined;
  const count = outside([...value].length, schema["minLength"], schema["maxLength"]);
  if (count) return t.produce.wrongSize(path, count);
  const pattern = schema["pattern"];
  return typeof pattern === "string" && !new RegExp(pattern, "u").test(value) ? t.produce.wrongType(path, `/${pattern}/`) : undefined;
}

function numberProblem(schema: Keywords, value: unknown, path: string): string | undefined {
  if (typeof value !== "number" && typeof value !== "bigint") return undefined;
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema as Record<string, number | boolean | undefined>;
  const isBelow = (typeof minimum === "number" && (exclusiveMinimum === true ? value <= minimum : value < minimum)) || (typeof exclusiveMinimum === "number" && value <= exclusiveMinimum);
  const isAbove = (typeof maximum === "number" && (exclusiveMaximum === true ? value >= maximum : value > maximum)) || (typeof exclusiveMaximum === "number" && value >= exclusiveMaximum);
  const range = outside(isBelow ? -1 : isAbove ? 1 : 0, 0, 0) ? `${minimum ?? exclusiveMinimum ?? "…"} – ${maximum ?? exclusiveMaximum ?? "…"}` : "";
  if (range) return t.produce.wrongType(path, range);
  if (typeof multipleOf !== "number") return undefined;
  const times = Number(value) / multipleOf;
  return Math.abs(times - Math.round(times)) > 1e-9 ? t.produce.wrongType(path, t.produce.multipleOf(multipleOf)) : undefined;
}

/** The limits, if the count is not within them. */
function outside(count: number, least: unknown, most: unknown): string {
  const isInside = (typeof least !== "number" || count >= least) && (typeof most !== "number" || count <= most);
  return isInside ? "" : `${typeof least === "number" ? least : 0} – ${typeof most === "number" ? most : "…"}`;
}
