// What the theme leaves out for those who use a keyboard or a screen reader.
document.addEventListener("DOMContentLoaded", () => {
  // switches of the menu have no words
  for (const summary of document.querySelectorAll("nav summary")) {
    const link = summary.closest("li")?.querySelector("a");
    summary.setAttribute("aria-label", `Pages below ${link ? link.textContent.trim() : "this one"}`);
  }
  // what scrolls can be reached
  for (const region of document.querySelectorAll("article table, article pre")) {
    if (region.scrollWidth > region.clientWidth) region.setAttribute("tabindex", "0");
  }
});
