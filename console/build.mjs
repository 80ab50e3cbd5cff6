// Builds src/ into src/goqueue/console/static/ of the project, which is committed: running a broker
// needs no Node. The same sources give the same bytes, which `make check-console` compares. A digest
// of the sources is written beside them, so that tests without Node notice a forgotten build.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const HERE = dirname(fileURLToPath(import.meta.url));
const DOWNLOAD_BYTES_MAX = 150 * 1024; // gzip, everything together
const target = process.argv[2] ?? join(HERE, "../src/goqueue/console/static");

/** What the files are built from; `tests/unit/console` computes the same digest. */
function digestOfSources() {
  const folders = readdirSync(join(HERE, "src"), { recursive: true, withFileTypes: true });
  const sources = folders.filter((entry) => entry.isFile()).map((entry) => relative(HERE, join(entry.parentPath, entry.name)));
  const names = [...sources, "build.mjs", "package.json", "package-lock.json", "tsconfig.json"].map((name) => name.split(sep).join("/"));
  const digest = createHash("sha256");
  for (const name of names.sort()) {
    const bytes = readFileSync(join(HERE, name));
    digest.update(`${name}\n${bytes.length}\n`).update(bytes);
  }
  return digest.digest("hex");
}

const shared = {
  absWorkingDir: HERE,
  bundle: true,
  minify: true,
  write: false,
  target: "es2022",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
};

function named(name, suffix, bytes) {
  const hash = createHash("sha256").update(bytes).digest("hex").slice(0, 12);
  return `${name}-${hash}.${suffix}`;
}

async function bundle(entry, format, define = {}) {
  const { outputFiles } = await build({ ...shared, entryPoints: [entry], format, define, outdir: "." });
  return Object.fromEntries(outputFiles.map((file) => [file.path.split(".").pop(), Buffer.from(file.contents)]));
}

const worker = (await bundle("src/filter-worker.ts", "iife")).js;
const workerName = named("filter-worker", "js", worker);
const app = await bundle("src/main.tsx", "esm", { FILTER_WORKER: JSON.stringify(`/console/${workerName}`) });
const scriptName = named("app", "js", app.js);
const styleName = named("app", "css", app.css);
const icon = readFileSync(join(HERE, "src/icon.svg"));
const iconName = named("icon", "svg", icon);
const index = readFileSync(join(HERE, "src/index.html"), "utf8")
  .replace("APP_SCRIPT", `/console/${scriptName}`)
  .replace("APP_STYLE", `/console/${styleName}`)
  .replace("APP_ICON", `/console/${iconName}`);

const files = {
  [scriptName]: app.js,
  [styleName]: app.css,
  [workerName]: worker,
  [iconName]: icon,
  "index.html": Buffer.from(index),
};
mkdirSync(target, { recursive: true });
for (const old of readdirSync(target)) rmSync(join(target, old));
let total = 0;
for (const [name, bytes] of Object.entries(files)) {
  const packed = gzipSync(bytes, { level: 9 });
  packed[9] = 255; // the operating system, so that every machine writes the same bytes
  total += packed.length;
  writeFileSync(join(target, name), bytes);
  writeFileSync(join(target, `${name}.gz`), packed);
  console.log(`${name}  ${bytes.length} bytes, ${packed.length} compressed`);
}
writeFileSync(join(target, "sources.sha256"), `${digestOfSources()}\n`);
console.log(`together ${(total / 1024).toFixed(1)} KiB compressed`);
if (total > DOWNLOAD_BYTES_MAX) throw new Error(`The console is larger than ${DOWNLOAD_BYTES_MAX} bytes.`);
