// Runs tests/*.test.ts with the test runner of Node: each is bundled with what it imports, because
// Node reads no TypeScript. What only browsers have is tested in tests/e2e/console of the project.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "console-tests-"));
const tests = readdirSync(join(HERE, "tests")).filter((name) => name.endsWith(".test.ts"));
try {
  await build({
    absWorkingDir: HERE,
    entryPoints: tests.map((name) => `tests/${name}`),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    target: "es2022",
    sourcemap: "inline",
    logLevel: "warning",
    jsx: "automatic",
    jsxImportSource: "preact",
  });
  // Older versions of Node have numbers without loss behind a flag; browsers all have them.
  const flags = ["--enable-source-maps", ...("rawJSON" in JSON ? [] : ["--harmony-json-parse-with-source"])];
  for (const name of tests) {
    const { status } = spawnSync(process.execPath, [...flags, join(folder, name.replace(/\.ts$/, ".mjs"))], { stdio: "inherit" });
    if (status !== 0) process.exitCode = 1;
  }
} finally {
  rmSync(folder, { recursive: true });
}
