// The timeline: a row a function, a bar a compile, in the colours of its stages. Drag over the chart to zoom in.
(() => {
    "use strict";
    const data = JSON.parse(document.getElementById("compiles").textContent);
    const canvas = document.getElementById("timeline");
    // The variables are texts such as "light-dark(…)": only an element's color has the color of the theme.
    const color = (name) => {
        const probe = document.body.appendChild(document.createElement("span"));
        probe.style.color = `var(${name})`;
        const found = getComputedStyle(probe).color;
        probe.remove();
        return found;
    };
    const seconds = (value) => `${value.toFixed(value < 10 ? 2 : 1)} s`;
    const forget = document.getElementById("forget");

    canvas.parentElement.style.height = `${data.functions.length * 30 + 90}px`;
    const chart = new Chart(canvas, {
        type: "bar",
        data: {
            labels: data.functions,
            datasets: data.stages.map((stage, number) => ({
                label: stage.name,
                backgroundColor: stage.color,
                data: data.bars.filter((bar) => bar.stage === number)
                    .map((bar) => ({ x: [bar.from, bar.to], y: data.functions[bar.function], bar })),
                grouped: false,
                barPercentage: 0.75,
            })),
        },
        options: {
            indexAxis: "y",
            animation: false,
            responsive: true,
            maintainAspectRatio: false,
            interaction: { mode: "point", intersect: true },
            scales: {
                x: {
                    min: 0,
                    max: data.seconds,
                    ticks: { color: color("--pale"), callback: (value) => seconds(value) },
                    grid: { color: color("--line") },
                },
                y: { ticks: { color: color("--text"), autoSkip: false }, grid: { display: false } },
            },
            plugins: {
                legend: { labels: { color: color("--text"), boxWidth: 14 } },
                tooltip: {
                    displayColors: false,
                    callbacks: {
                        title: ([item]) => item.raw.bar.title,
                        label: (item) => [
                            `${item.dataset.label} ${seconds(item.raw.bar.to - item.raw.bar.from)}`,
                            ...item.raw.bar.lines,
                        ],
                    },
                },
                zoom: {
                    limits: { x: { min: 0, max: data.seconds } },
                    zoom: {
                        mode: "x",
                        drag: { enabled: true },
                        wheel: { enabled: true, modifierKey: "ctrl" },
                        onZoomComplete: () => { forget.hidden = false; },
                    },
                },
            },
            onClick: (_event, [found]) => {
                if (found !== undefined) {
                    open(chart.data.datasets[found.datasetIndex].data[found.index].bar.anchor);
                }
            },
        },
    });
    forget.addEventListener("click", () => {
        chart.resetZoom();
        forget.hidden = true;
    });

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
