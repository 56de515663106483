# Reads README.md (the arrow), the table of foreign headers, then all sources and CMakeLists.txt twice: first to
# learn which target is which folder, then to check.

# Folders of the arrow: level[name] grows to the right. "models", "tests" and "bench" are top folders, the others
# lie under runtime/.
function room(path) {
  if (path !~ /\//) return ""
  split(path, part, "/")
  return part[1] == "runtime" ? part[2] : part[1]
}
function folder(path) { sub(/\/[^\/]*$/, "", path); return path }
function complain(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; ++bad }

function check_own(from, to, what,   a, b) {
  a = room(from)
  b = room(to)
  if (!(b in level)) complain(what " names a folder that is not on the arrow")
  else if (!(a in level)) complain("the folder of this file is not on the arrow in README.md")
  else if (a != b && level[b] >= level[a])
    complain(what " goes against the arrow: " a " may only use what stands to its left, " b " does not")
  else if ((a == "optim" || from ~ /^models\/layers\//) && b == "comm")
    complain(what ": optimizers and layers do not see comm")
}
function check_foreign(name, column, what,   i, j, n, place) {
  for (i = 1; i <= libraries; ++i) {
    if (name !~ "^(" pattern[column, i] ")$") continue
    n = split(places[i], place, " ")
    for (j = 1; j <= n; ++j) if (index(FILENAME, place[j] "/") == 1) return
    complain(what " belongs in " places[i] " only")
    return
  }
  complain(what " is not listed in .ci/foreign_headers")
}
function is_standard(name) {
  return name ~ /^[a-z_]+$/ || name ~ /^(sys|linux|arpa|netinet)\/[a-z0-9_]+\.h$/ ||
         name ~ /^(dirent|dlfcn|elf|errno|fcntl|ifaddrs|immintrin|link|malloc|netdb|poll|pthread|sched|signal|spawn|unistd)\.h$/
}
function check_links(call,   words, n, i, own) {
  n = split(call, words, /[ \t()"]+/)
  for (i = 1; i <= n; ++i) {
    own = words[i]
    sub(/^rondo::/, "rondo_", own)
    if (own in home) check_own(FILENAME, home[own] "/", "the link to " own)
    else if (words[i] ~ /^rondo_|^rondo::/ && i > 2 && words[i] !~ /^rondo_(library|test)$/ && room(FILENAME) != "tests")
      complain("no folder makes the target " words[i])
    else if (words[i] ~ /::/ && words[i] !~ /^rondo::/) check_foreign(words[i], 2, "the link to " words[i])
  }
}

FILENAME == "README.md" {
  if ($0 !~ /^base → /) next
  ++arrows
  line = $0
  n = split(line, stage, / → /)
  for (i = 1; i <= n; ++i) {
    m = split(stage[i], names, /, /)
    for (j = 1; j <= m; ++j) level[names[j]] = i
  }
  next
}
FILENAME ~ /foreign_headers$/ {
  if ($0 ~ /^#/ || NF == 0) next
  split($0, field, / \| /)
  ++libraries
  pattern[1, libraries] = field[1]
  pattern[2, libraries] = field[2]
  places[libraries] = field[3]
  next
}
FNR == 1 {
  call = ""
  ++seen[FILENAME]
}
seen[FILENAME] == 1 {
  if (FILENAME ~ /CMakeLists\.txt$/ && match($0, /rondo_library\([a-z_0-9]+/))
    home["rondo_" substr($0, RSTART + 14, RLENGTH - 14)] = folder(FILENAME)
  next
}
FILENAME ~ /CMakeLists\.txt$/ {
  sub(/#.*/, "")
  if (call == "" && $0 !~ /^ *(rondo_library|rondo_test|target_link_libraries)\(/) next
  call = call " " $0
  if (gsub(/\(/, "(", call) <= gsub(/\)/, ")", call)) {
    check_links(call)
    call = ""
  }
  next
}
/^[ \t]*#[ \t]*include/ {
  if (match($0, /"[^"]*"/)) {
    name = substr($0, RSTART + 1, RLENGTH - 2)
    if (name !~ /^(runtime|models|tests|bench)\//)
      complain("#include \"" name "\" does not start at the root of the repository")
    else {
      if (!(name in exists)) exists[name] = (getline ignored < name) >= 0
      close(name)
      if (!exists[name]) complain("#include \"" name "\" names no file")
      check_own(FILENAME, name, "#include \"" name "\"")
    }
  } else if (match($0, /<[^>]*>/)) {
    name = substr($0, RSTART + 1, RLENGTH - 2)
    if (!is_standard(name)) check_foreign(name, 1, "#include <" name ">")
  } else
    complain("#include of a macro: write the name out")
}
END {
  if (arrows != 1) {
    print "README.md: expected one line that starts with `base → `, the arrow; found " arrows + 0
    ++bad
  }
  if (bad) print bad " violations"
  exit bad ? 1 : 0
}
