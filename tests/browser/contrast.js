// The contrast of each visible text with what is behind it, by WCAG 2; returns what is too faint.
// Colours of any notation are painted on one pixel and read back. Layers are laid over each other from the
// root to the text; an element's opacity counts for what is in it, approximately: as transparency of its text.

const brush = Object.assign(document.createElement('canvas'), { width: 1, height: 1 })
  .getContext('2d', { willReadFrequently: true })

function rgba(colour) {
  brush.clearRect(0, 0, 1, 1)
  brush.fillStyle = '#000'
  brush.fillStyle = colour
  brush.fillRect(0, 0, 1, 1)
  const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data
  return [r, g, b, a / 255]
}

const over = ([r, g, b, a], below) => [r, g, b].map((part, at) => part * a + below[at] * (1 - a))

function behind(element) {
  const layers = []
  for (let each = element; each; each = each.parentElement) layers.unshift(getComputedStyle(each).backgroundColor)
  const dark = getComputedStyle(document.documentElement).colorScheme.trim() === 'dark'
  return layers.reduce((below, layer) => over(rgba(layer), below), dark ? [18, 18, 18] : [255, 255, 255])
}

function opacity(element) {
  let product = 1
  for (let each = element; each; each = each.parentElement) product *= Number(getComputedStyle(each).opacity)
  return product
}

function luminance(colour) {
  const [r, g, b] = colour.map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

function contrast(one, other) {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a)
  return (light + 0.05) / (dark + 0.05)
}

function enough(style) {
  const points = parseFloat(style.fontSize) * 0.75
  return points >= 18 || (points >= 14 && Number(style.fontWeight) >= 700) ? 3 : 4.5
}

function complaint(element, text) {
  const style = getComputedStyle(element)
  const [r, g, b, a] = rgba(element instanceof SVGElement ? style.fill : style.color)
  const ground = behind(element)
  const ratio = contrast(over([r, g, b, a * opacity(element)], ground), ground)
  if (ratio >= enough(style) - 0.005) return null
  return `${ratio.toFixed(2)} for '${text.trim().slice(0, 40)}' in ${element.cloneNode().outerHTML.slice(0, 100)}`
}

function texts() {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  const found = []
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement
    const shown = element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length
    if (shown && walker.currentNode.data.trim() && !element.closest(':disabled, script, style, noscript')) {
      found.push([element, walker.currentNode.data])
    }
  }
  return found
}

return [...new Set(texts().map(([element, text]) => complaint(element, text)).filter(Boolean))]
