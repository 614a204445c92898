# Shared by the parts of the quickstart: where things go, and `run`, which shows a command before it runs it.
meshwright="${MESHWRIGHT:-meshwright}"
out="${OUT:-quickstart}"
mkdir -p "${out}"

run() {
  local word text=""
  for word in "$@"; do
    [[ "${word}" == *[[:space:]]* ]] && word="\"${word}\""
    text+=" ${word}"
  done
  printf '\n$%s\n' "${text}"
  "${meshwright}" "${@:2}"
}
