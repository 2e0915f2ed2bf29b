/** The page of explored stages: panes in which counterparts light up together. */
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const panes = [];
let compiled, parts, children, chosen;
const element = (name, text) => Object.assign(document.createElement(name), text === undefined ? {} : { textContent: text });

function open(index) {
    compiled = data.compiles[index];
    parts = new Map();
    children = new Map();
    for (const document of compiled.documents ?? []) {
        for (const part of document.parts ?? []) {
            const id = `${document.id}:${part.name}`;
            parts.set(id, { ...part, id, document });
            for (const parent of part.parents ?? []) {
                children.set(parent, [...(children.get(parent) ?? []), id]);
            }
        }
    }
    const ids = (compiled.documents ?? []).map((each) => each.id);
    const source = sourcePaths()[0];
    const wanted = [source && `source:${source}`, "dynamo", ids.find((id) => id.endsWith("-fused")), ids.find((id) => id.endsWith("-kernels"))];
    panes.splice(0);
    document.getElementById("panes").replaceChildren();
    [...new Set(wanted.filter(Boolean))].forEach(addPane);
    document.getElementById("peaks").replaceChildren(...peaks());
}

/** For each pass when the most memory is in use: a button that leads to the kernel, and so to its lines. */
function peaks() {
    const found = new Map([...parts.values()].filter((each) => each.isPeak && each.document.id.endsWith("-kernels")).reverse().map((each) => [each.document.id, each]));
    return [...found.values()].reverse().map((part) => {
        const lines = [...placesOf(part, false)].map(({ path, line }) => `${data.sources[path]?.name ?? path}:${line}`);
        const text = `${part.document.id.split("-")[0]} peak: ${size(part.memory)} at ${lines[0] ?? part.name}${lines.length > 1 ? " …" : ""}`;
        const button = Object.assign(element("button", text), { title: [`the most memory in use, in ${part.name}`, ...lines].join("\n") });
        button.onclick = () => {
            const pane = panes.find(({ select }) => select.value === part.document.id) ?? panes.at(-1);
            pane.select.value = part.document.id;
            fill(pane);
            choose(pane, part.first);
            pane.lines[part.first - 1].scrollIntoView({ block: "center" });
        };
        return button;
    });
}

function sourcePaths() {
    const count = new Map();
    for (const { document, lines } of parts.values()) {
        for (const index of lines ?? []) {
            const { path } = document.places[index].place;
            count.set(path, (count.get(path) ?? 0) + 1);
        }
    }
    return [...count.keys()].sort((one, other) => (one === compiled.place.path ? -1 : other === compiled.place.path ? 1 : count.get(other) - count.get(one)));
}

function addPane(wanted) {
    const pane = { root: element("section"), select: element("select"), code: element("div") };
    pane.root.className = "pane";
    pane.code.className = "code";
    for (const path of sourcePaths()) {
        pane.select.append(new Option(data.sources[path]?.name ?? path, `source:${path}`));
    }
    for (const document of compiled.documents ?? []) {
        pane.select.append(new Option(`${document.title} (${document.id})`, document.id));
        if (document.before !== undefined) {
            const changes = data.changes[`${compiled.id}:${document.id}`];
            pane.select.append(new Option(changes ? `… what its passes changed` : `… its passes changed nothing`, `changes:${document.id}`));
        }
    }
    pane.select.value = wanted ?? pane.select.options[0]?.value;
    pane.select.onchange = () => { fill(pane); light(); };
    pane.root.append(pane.select, pane.code);
    panes.push(pane);
    document.getElementById("panes").append(pane.root);
    fill(pane);
    light();
}

function fill(pane) {
    const wanted = pane.select.value;
    pane.lines = [];
    pane.partOfLine = new Map();
    pane.path = undefined;
    let text = [];
    let language = "python";
    if (wanted.startsWith("source:")) {
        pane.path = wanted.slice(7);
        text = data.sources[pane.path]?.lines ?? [];
    } else if (wanted.startsWith("changes:")) {
        text = (data.changes[`${compiled.id}:${wanted.slice(8)}`] || "nothing").split("\n");
        language = "diff";
    } else {
        const document = compiled.documents.find((each) => each.id === wanted);
        text = document.text.split("\n");
        language = document.language;
        for (const part of document.parts ?? []) {
            for (let line = part.first; line <= part.last; line++) {
                pane.partOfLine.set(line, `${document.id}:${part.name}`);
            }
        }
    }
    const inSource = new Set();
    for (const each of parts.values()) {
        for (const place of placesOf(each)) {
            if (place.path === pane.path) {
                inSource.add(place.line);
            }
        }
    }
    pane.code.replaceChildren(...text.map((line, index) => {
        const row = element("div");
        const number = element("span", String(index + 1));
        number.className = "n";
        row.append(number, ...coloured(line, language));
        const isPart = pane.path === undefined ? pane.partOfLine.has(index + 1) : inSource.has(index + 1);
        if (isPart) {
            row.className = "part";
            row.onclick = () => choose(pane, index + 1);
            row.onmouseenter = () => { row.title = counterpartsText(pane, index + 1); };
        }
        if (language === "diff" && "+-".includes(line[0] ?? " ")) {
            row.className = line[0] === "+" ? "added" : "removed";
        }
        pane.lines.push(row);
        return row;
    }));
}

const KEYWORDS = /^(?:def|return|import|from|class|for|if|else|in|while|with|as|lambda|None|True|False|auto|const|void|float|int|long|static_cast|template|inline|extern|double|bool|del|and|or|not|self)$/;
function coloured(line, language) {
    const mark = language === "cpp" ? "//.*" : "#.*";
    const token = new RegExp(`(${mark})|("(?:[^"\\\\]|\\\\.)*"|'(?:[^'\\\\]|\\\\.)*')|([A-Za-z_]\\w*)|(\\b\\d[\\w.]*)`, "g");
    const found = [];
    let at = 0;
    for (const match of language === "diff" ? [] : line.matchAll(token)) {
        const kind = match[1] ? "c" : match[2] ? "s" : match[4] ? "d" : KEYWORDS.test(match[3]) ? "k" : "";
        if (kind) {
            found.push(line.slice(at, match.index), Object.assign(element("span", match[0]), { className: kind }));
            at = match.index + match[0].length;
        }
    }
    return [...found, line.slice(at)];
}

function* placesOf(part, callers = true) {
    for (const index of [...(part.lines ?? []), ...(callers ? part.callers ?? [] : [])]) {
        yield part.document.places[index].place;
    }
}

function closure(names, following) {
    const found = new Set();
    const waiting = [...names];
    while (waiting.length > 0) {
        const each = waiting.pop();
        if (!found.has(each)) {
            found.add(each);
            waiting.push(...following(each));
        }
    }
    return found;
}
const ancestors = (names) => closure(names, (each) => parts.get(each)?.parents ?? []);
const descendants = (names) => closure(names, (each) => children.get(each) ?? []);
const ofLine = (path, line) => [...parts.values()].filter((part) => [...placesOf(part)].some((place) => place.path === path && place.line === line)).map((part) => part.id);

function counterparts(pane, line) {
    if (pane.path !== undefined) {
        return descendants(ofLine(pane.path, line));
    }
    const name = pane.partOfLine.get(line);
    return new Set([...ancestors([name]), ...descendants([name])]);
}

function counterpartsText(pane, line) {
    const found = counterparts(pane, line);
    const part = parts.get(pane.partOfLine.get(line));
    const kernels = [...found].map((id) => parts.get(id)).filter((each) => each?.document.id.endsWith("-kernels"));
    const lines = new Map();
    for (const each of part ? [part] : kernels) {
        for (const place of placesOf(each, false)) {
            const file = data.sources[place.path];
            lines.set(`${file?.name ?? place.path}:${place.line}`, (file?.lines[place.line - 1] ?? "").trim());
        }
    }
    const texts = [...lines].map(([place, text]) => `${place}  ${text}`);
    const details = part ? [part] : [...found].map((id) => parts.get(id)).filter((each) => each && !/-(ir|kernels)$/.test(each.document.id));
    const why = [...new Set(details.flatMap((each) => (each.why ?? []).map((reason) => `  ${each.name}: ${reason}`)))];
    const kept = details.filter((each) => each.saved ?? each.recomputed);
    return [
        ...(part?.note ? [part.note] : []),
        ...(part ? [costs(part), ...(part.lowerings ?? [])].filter(Boolean) : []),
        ...(kernels.length > 0 ? ["Kernels:", ...kernels.map((each) => `  ${[`${each.name} (${each.document.id})`, costs(each)].filter(Boolean).join(": ")}`)] : []),
        ...(!part && kept.length > 0 ? ["For the backward pass:", ...kept.map((each) => `  ${each.name}: ${costs(each)}`)] : []),
        ...(why.length > 0 ? ["Why:", ...why] : []),
        ...(texts.length > 0 ? [part ? "Your lines:" : "Lines in these kernels:", ...texts.map((text) => `  ${text}`)] : ["Nobody knows which line of yours this comes from."]),
    ].join("\n");
}

function costs(part) {
    return [
        part.read !== undefined && `reads ${size(part.read)}`,
        part.written !== undefined && `writes ${size(part.written)}`,
        part.flops !== undefined && `${part.flops} FLOPs`,
        part.memory !== undefined && `${size(part.memory)} in use${part.isPeak ? ", the peak of its pass" : ""}`,
        part.saved !== undefined && `${size(part.saved)} saved for the backward pass`,
        part.recomputed !== undefined && `${size(part.recomputed)} computed again in the backward pass`,
    ].filter(Boolean).join(", ");
}

function size(count) {
    const power = Math.min(3, Math.floor(Math.log2(Math.max(1, count)) / 10));
    return power === 0 ? `${count} B` : `${(count / 1024 ** power).toFixed(1)} ${["", "KiB", "MiB", "GiB"][power]}`;
}

function choose(pane, line) {
    chosen = { pane, line, value: pane.select.value };
    light(true);
}

function light(scroll = false) {
    if (chosen !== undefined && (!panes.includes(chosen.pane) || chosen.pane.select.value !== chosen.value)) {
        chosen = undefined;
    }
    const found = chosen === undefined ? new Set() : counterparts(chosen.pane, chosen.line);
    const places = new Set();
    if (chosen?.pane.path !== undefined) {
        places.add(`${chosen.pane.path}:${chosen.line}`);
    } else if (chosen !== undefined) {
        const part = parts.get(chosen.pane.partOfLine.get(chosen.line));
        for (const place of placesOf(part, false)) {
            places.add(`${place.path}:${place.line}`);
        }
    }
    for (const pane of panes) {
        let first;
        pane.lines.forEach((row, index) => {
            const isLit = pane.path === undefined ? found.has(pane.partOfLine.get(index + 1)) : places.has(`${pane.path}:${index + 1}`);
            row.classList.toggle("lit", isLit);
            row.classList.toggle("chosen", pane === chosen?.pane && (pane.path === undefined ? pane.partOfLine.get(index + 1) === pane.partOfLine.get(chosen.line) : index + 1 === chosen.line));
            first ??= isLit ? row : undefined;
        });
        if (scroll && pane !== chosen?.pane) {
            first?.scrollIntoView({ block: "center" });
        }
    }
    document.getElementById("counterparts").textContent = chosen === undefined ? "Click a line: its counterparts light up." : counterpartsText(chosen.pane, chosen.line).replace(/\n\s*/g, " · ");
}

const select = document.getElementById("compile");
data.compiles.forEach((each, index) => select.append(new Option(`${each.name} [${each.id}]`, index)));
select.onchange = () => open(Number(select.value));
document.getElementById("more").onclick = () => addPane();
if (data.compiles.length > 0) {
    open(0);
}
