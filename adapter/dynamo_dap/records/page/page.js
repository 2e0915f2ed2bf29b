// The timeline: a row for each function, a bar for each stage of a compile. Drag over the bars to zoom in.
(() => {
    "use strict";
    const chart = document.getElementById("timeline");
    const forget = document.getElementById("forget");
    const ROW = 28;
    const DRAGGED = 4;
    let begin = 0;
    let end = 0;

    const seconds = (value) => `${value.toFixed(value < 10 ? 2 : 1)} s`;

    function made(tag, text, name, style) {
        const element = document.createElement(tag);
        element.textContent = text;
        element.className = name;
        Object.assign(element.style, style);
        return element;
    }

    function drawTimeline(data) {
        const lanes = made("div", "", "lanes", { height: `${data.functions.length * ROW}px` });
        const ruler = made("div", "", "ruler");
        const legend = made("ul", "", "legend");
        for (const stage of data.stages) {
            const item = made("li", stage.name, "");
            item.prepend(made("i", "", "", { background: stage.color }));
            legend.append(item);
        }
        const names = made("div", "", "names");
        for (const name of data.functions) {
            const row = made("div", name, "", { height: `${ROW}px`, lineHeight: `${ROW}px` });
            row.title = name;
            names.append(row);
        }
        chart.append(legend, names, lanes, ruler);

        function show(from, to) {
            const span = Math.min(Math.max(to - from, data.seconds / 1e5), data.seconds);
            begin = Math.max(0, Math.min(from, data.seconds - span));
            end = begin + span;
            forget.hidden = span >= data.seconds;
            draw();
        }

        function draw() {
            const scale = (lanes.clientWidth || 1) / (end - begin);
            // By row and stage: the pixels that already have a bar. Thousands of short compiles share them.
            const covered = new Set();
            const shown = [];
            for (const bar of data.bars) {
                const left = Math.max(0, (bar.from - begin) * scale);
                const width = Math.min(lanes.clientWidth, (bar.to - begin) * scale) - left;
                const pixel = `${bar.function} ${bar.stage} ${Math.floor(left)}`;
                if (width < 0 || bar.from > end || (width < 1 && covered.has(pixel))) {
                    continue;
                }
                covered.add(pixel);
                const box = made("button", "", "", {
                    left: `${left}px`, width: `${Math.max(1, width)}px`, top: `${bar.function * ROW + 3}px`,
                    height: `${ROW - 6}px`, background: data.stages[bar.stage].color,
                });
                box.type = "button";
                box.title = [bar.title, `${data.stages[bar.stage].name} ${seconds(bar.to - bar.from)}`, ...bar.lines].join("\n");
                box.setAttribute("aria-label", `${bar.title}, ${data.stages[bar.stage].name}`);
                box.addEventListener("click", () => open(bar.anchor));
                shown.push(box);
            }
            lanes.replaceChildren(...shown);
            drawRuler();
        }

        function drawRuler() {
            const width = ruler.clientWidth || 1;
            // 1, 2 or 5 times a power of ten: the least with 70 pixels for each mark.
            const least = 70 * (end - begin) / width;
            const power = 10 ** Math.floor(Math.log10(least));
            const step = [1, 2, 5, 10].map((times) => times * power).find((each) => each >= least);
            const digits = Math.max(0, -Math.floor(Math.log10(step)));
            const marks = [];
            for (let number = Math.ceil(begin / step); number * step < end; number++) {
                const left = ((number * step - begin) / (end - begin)) * width;
                marks.push(made("span", `${(number * step).toFixed(digits)} s`, "", { left: `${left}px` }));
            }
            ruler.replaceChildren(...marks);
        }

        const timeAt = (x) => begin + ((x - lanes.getBoundingClientRect().left) / lanes.clientWidth) * (end - begin);

        lanes.addEventListener("pointerdown", (down) => {
            const selection = made("div", "", "selection");
            const choose = (moved) => {
                const at = [down.clientX, moved.clientX].map((x) => x - lanes.getBoundingClientRect().left);
                Object.assign(selection.style, { left: `${Math.min(...at)}px`, width: `${Math.abs(at[1] - at[0])}px` });
                lanes.append(selection);
            };
            const finish = (up) => {
                removeEventListener("pointermove", choose);
                selection.remove();
                if (up.type === "pointerup" && Math.abs(up.clientX - down.clientX) > DRAGGED) {
                    // The click that follows is not on a bar that the user chose.
                    const ignore = (event) => event.stopPropagation();
                    lanes.addEventListener("click", ignore, { capture: true, once: true });
                    setTimeout(() => lanes.removeEventListener("click", ignore, { capture: true }));
                    const times = [timeAt(down.clientX), timeAt(up.clientX)];
                    show(Math.min(...times), Math.max(...times));
                }
            };
            addEventListener("pointermove", choose);
            addEventListener("pointerup", finish, { once: true });
            addEventListener("pointercancel", finish, { once: true });
        });
        lanes.addEventListener("wheel", (event) => {
            if (event.ctrlKey) {
                event.preventDefault();
                const at = timeAt(event.clientX);
                const factor = event.deltaY < 0 ? 0.8 : 1.25;
                show(at - (at - begin) * factor, at + (end - at) * factor);
            }
        }, { passive: false });
        forget.addEventListener("click", () => show(0, data.seconds));
        addEventListener("resize", draw);
        show(0, data.seconds);
    }

    const data = document.getElementById("compiles");
    if (data !== null) {
        drawTimeline(JSON.parse(data.textContent));
    }

    function open(anchor) {
        for (let at = document.getElementById(anchor); at !== null; at = at.parentElement) {
            if (at.tagName === "DETAILS") {
                at.open = true;
            }
        }
        document.getElementById(anchor)?.scrollIntoView({ behavior: "smooth", block: "start" });
    }

    // Links into what is folded open it. Some viewers of pages follow a link themselves and change no address.
    addEventListener("hashchange", () => open(location.hash.slice(1)));
    addEventListener("click", (event) => {
        const href = event.target.closest?.("a")?.getAttribute("href") ?? "";
        if (href.startsWith("#")) {
            open(href.slice(1));
        }
    });
    if (location.hash !== "") {
        open(location.hash.slice(1));
    }
})();
