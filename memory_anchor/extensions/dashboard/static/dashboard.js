// Keys, the count of what is chosen, and what is written meanwhile. Every page works without this file.
(function () {
  "use strict";
  const typing = (node) => /^(INPUT|TEXTAREA|SELECT)$/.test(node.tagName) && !/^(radio|checkbox)$/.test(node.type || "");
  const items = () => [...document.querySelectorAll(".item")];

  function move(step) {
    const all = items();
    if (!all.length) return;
    const at = all.findIndex((one) => one.contains(document.activeElement));
    const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))];
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "center", behavior: "auto" });
  }

  function choose(values) {
    const item = document.activeElement.closest(".item");
    const radio = item && values.map((one) => item.querySelector(`input[type=radio][value=${one}]`)).find(Boolean);
    if (!radio) return;
    radio.checked = true;
    radio.dispatchEvent(new Event("change", { bubbles: true }));
    item.focus();
  }

  const keys = {
    j: () => move(1),
    k: () => move(-1),
    a: () => choose(["accept", "keep_new"]),
    r: () => choose(["reject", "keep_old"]),
    e: () => {
      const item = document.activeElement.closest(".item");
      const edit = item && item.querySelector("details.edit");
      if (!edit) return;
      edit.open = true;
      choose(["accept"]);
      edit.querySelector("textarea").focus();
    },
    u: () => location.assign("/undo"),
    "/": () => document.getElementById("find").focus(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && typing(event.target)) {
      (event.target.closest(".item") || event.target).focus();
      event.target.blur();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  document.addEventListener("change", () => {
    const told = document.getElementById("chosen");
    if (!told) return;
    const many = document.querySelectorAll(".inbox input[type=radio]:checked:not([value=''])").length;
    told.textContent = many ? told.dataset.some.replace("#", many) : told.dataset.none;
  });

  const feed = document.getElementById("feed");
  if (feed && window.EventSource) {
    const stream = new EventSource("/feed");
    stream.onmessage = (event) => {
      feed.insertAdjacentHTML("afterbegin", event.data);
      while (feed.children.length > 50) feed.lastElementChild.remove();
    };
    addEventListener("pagehide", () => stream.close());
  }
})();
