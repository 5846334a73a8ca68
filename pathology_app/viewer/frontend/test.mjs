// Runs test/**/*.test.ts under node's own test runner.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";

const folder = mkdtempSync(join(tmpdir(), "gemslide-viewer-"));
try {
  const entryPoints = readdirSync("test", { recursive: true }).filter((name) => name.endsWith(".test.ts")).map((name) => join("test", name));
  const loader = { ".css": "text" };
  await build({ entryPoints, outdir: folder, bundle: true, format: "esm", platform: "node", outExtension: { ".js": ".mjs" }, loader });
  const files = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(".mjs")).map((name) => join(folder, name));
  process.exitCode = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true });
}
