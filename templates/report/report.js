"use strict";
(() => {
  const REACH = 26; // pixels around the pointer that select a mark

  const described = (row) => {
    const cells = [...row.cells].map((cell) => cell.textContent.trim());
    if (row.closest(".variants")) {
      const [machine, accelerators, weights, price, speed, first, each, million, verdict] = cells;
      return [
        machine, verdict,
        `${accelerators}, ${weights}`,
        `${price} an hour, ${speed} tokens/s, ${million} a million tokens`,
        `first token after ${first}, then one every ${each}`,
      ];
    }
    const [machine, configurations, price, why] = cells;
    const code = row.closest("details").querySelector("code").textContent;
    return [machine, code, `${configurations}; ${price} an hour`, why];
  };

  const fill = (tip, [machine, code, ...lines]) => {
    const parts = [["b", machine], ["code", code], ...lines.map((line) => ["span", line])];
    tip.replaceChildren(...parts.map(([name, text]) => {
      const part = document.createElement(name);
      part.textContent = text;
      if (name === "span") part.style.display = "block";
      return part;
    }));
  };

  for (const chart of document.querySelectorAll(".chart")) {
    const tip = chart.parentElement.querySelector(".tip");
    const points = [...chart.querySelectorAll("[data-row]")];
    const rowOf = (point) => document.getElementById(point.dataset.row);
    let lit = null;

    for (const point of points) point.setAttribute("aria-label", described(rowOf(point)).join(". "));

    const show = (point) => {
      if (lit === point && !tip.hidden) return;
      hide();
      lit = point;
      point.classList.add("lit");
      fill(tip, described(rowOf(point)));
      tip.hidden = false;
      const scale = chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
      const [x, y] = [point.dataset.x * scale, point.dataset.y * scale];
      const room = chart.parentElement.clientWidth - tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(room, x - tip.offsetWidth / 2))}px`;
      tip.style.top = `${y - tip.offsetHeight - 14 > -60 ? y - tip.offsetHeight - 14 : y + 14}px`;
    };
    const hide = () => {
      tip.hidden = true;
      if (lit) lit.classList.remove("lit");
      lit = null;
    };
    const nearest = (event) => {
      const frame = chart.getBoundingClientRect();
      const scale = chart.viewBox.baseVal.width / frame.width;
      const [x, y] = [(event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale];
      let best = null, closest = REACH * scale;
      for (const point of points) {
        const distance = Math.hypot(point.dataset.x - x, point.dataset.y - y);
        if (distance < closest) [best, closest] = [point, distance];
      }
      return best;
    };
    const follow = (event) => {
      const point = nearest(event);
      if (point) show(point); else hide();
    };
    const reach = (point) => {
      for (const other of points) other.setAttribute("tabindex", other === point ? "0" : "-1");
      point.focus({ preventScroll: false });
    };

    chart.addEventListener("pointermove", follow);
    chart.addEventListener("pointerdown", follow);
    chart.addEventListener("pointerleave", hide);
    // In Chromium, an <svg> with a focus listener becomes a tab stop, so its box listens instead.
    chart.parentElement.addEventListener("focusin", (event) => { if (points.includes(event.target)) show(event.target); });
    chart.parentElement.addEventListener("focusout", hide);
    chart.addEventListener("keydown", (event) => {
      const index = points.indexOf(event.target);
      const to = {
        ArrowRight: index + 1, ArrowDown: index + 1, ArrowLeft: index - 1, ArrowUp: index - 1,
        Home: 0, End: points.length - 1,
      }[event.key];
      if (event.key === "Escape") hide();
      if (index < 0 || to === undefined) return;
      event.preventDefault();
      reach(points[(to + points.length) % points.length]);
    });
  }

  const copy = async (button) => {
    const source = document.getElementById(button.dataset.copy);
    let done = "Copied";
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      getSelection().selectAllChildren(source);
      done = "Selected";
    }
    button.textContent = done;
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  };
  for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", () => copy(button));

  const filter = document.getElementById("filter");
  if (filter) {
    const groups = [...document.querySelectorAll(".tables details")].map((details) => ({
      details, open: details.open,
      rows: [...details.querySelectorAll("tbody tr")].map((row) => [row, `${details.querySelector("summary").textContent} ${row.textContent}`.toLowerCase()]),
    }));
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const group of groups) {
        let here = 0;
        for (const [row, text] of group.rows) {
          row.hidden = !words.every((word) => text.includes(word));
          if (!row.hidden) here += 1;
        }
        group.details.hidden = here === 0;
        group.details.open = words.length ? here > 0 : group.open;
        shown += here;
      }
      document.querySelector(".filter output").textContent = words.length ? `${shown} rows` : "";
    });
  }

  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll(".commands details")) details.open = true;
  });
})();
