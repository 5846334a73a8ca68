// Bundles the viewer and OpenSeadragon into one ES module, dist/viewer-<hash>.js.
// The name contains a hash of the contents, so that browsers may cache the file indefinitely.
import { createHash } from "node:crypto";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const result = await build({
  entryPoints: ["src/index.ts"],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  banner: {
    js: "/*! With OpenSeadragon 6.1.1, (C) 2009 CodePlex Foundation, 2010-2025 OpenSeadragon contributors, BSD-3-Clause: THIRD_PARTY_LICENSES.md */",
  },
  loader: { ".css": "text" },
  write: false,
});
const [{ contents }] = result.outputFiles;
const hash = createHash("sha256").update(contents).digest("hex").slice(0, 12);
rmSync("dist", { recursive: true, force: true });
mkdirSync("dist");
writeFileSync(`dist/viewer-${hash}.js`, contents);
console.log(`dist/viewer-${hash}.js ${contents.length} bytes`);
