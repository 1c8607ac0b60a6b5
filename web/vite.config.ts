import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { defineConfig } from "vite";

// What the page is built from, as `scripts/check_page.py` adds it up without Node.
const SOURCES = ["index.html", "package-lock.json", "public", "src", "tsconfig.json", "vite.config.ts"];

function files(path: string): string[] {
  return statSync(path).isDirectory() ? readdirSync(path).flatMap((name) => files(`${path}/${name}`)) : [path];
}

function digest(): string {
  const hash = createHash("sha256");
  for (const path of SOURCES.flatMap(files).sort()) hash.update(`${path}\0`).update(readFileSync(path)).update("\0");
  return hash.digest("hex").slice(0, 32);
}

// The built files have fixed names: the Python server knows them, and `.ci/run` compares them with
// what is committed.
export default defineConfig({
  base: "./",
  plugins: [
    {
      name: "banner", // After the code is made small, which drops comments.
      generateBundle(_options, bundle) {
        const page = bundle["page.js"];
        if (page.type === "chunk") page.code = `/* rgpu (Apache-2.0), with Preact and uPlot (MIT): licences.txt. Built from ${digest()} */\n${page.code}`;
      },
    },
  ],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../rgpu_server/web/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    reportCompressedSize: false,
    rollupOptions: {
      output: {
        entryFileNames: "page.js",
        assetFileNames: "page[extname]",
        codeSplitting: false,
      },
    },
  },
});
