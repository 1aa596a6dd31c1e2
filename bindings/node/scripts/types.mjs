// Makes TypeScript of what the macros of napi-rs note down.

const HEAD = `// Made from the Rust of the native part by \`npm run build\`: not to be edited.

/** JSON, as a text or as its bytes. */
export type GivenJson = string | Uint8Array
`;

const indented = (text) => text.replace(/^(?=.)/gm, "  ");

/** Returns the declarations of a module, from the recorded lines of JSON. */
export function declarations(lines) {
  const classes = new Map();
  const out = [];
  for (const line of lines) {
    const { kind, name, js_doc: doc, def } = JSON.parse(line);
    if (kind === "struct" || kind === "impl") {
      const found = classes.get(name) ?? { doc: "", parts: [] };
      found.doc ||= doc;
      if (def) found.parts.push(def.replace(/^ /gm, (space) => (space === " " ? " " : "")));
      classes.set(name, found);
    } else if (kind === "interface") {
      out.push([name, `${doc}export interface ${name} {\n${indented(def)}\n}\n`]);
    } else if (kind === "fn") {
      out.push([name, `${doc}export declare ${def}\n`]);
    } else if (kind === "const") {
      out.push([name, `${doc}${def.replace(/^export const/, "export declare const")}\n`]);
    } else {
      throw new Error(`the native part has a ${kind} (${name}), which has no place in its types yet`);
    }
  }
  for (const [name, { doc, parts }] of classes) {
    const body = parts.join("\n").replace(/^ (?=[\w[])/gm, "");
    out.push([name, `${doc}export declare class ${name} {\n${indented(body)}\n}\n`]);
  }
  out.sort(([one], [other]) => (one < other ? -1 : 1));
  return `${HEAD}\n${out.map(([, text]) => text).join("\n")}`;
}
