# Writes a .cpp with the text of files as one string: cmake -DOUT=... -DFUNCTION=... "-DFILES=a;b" -P embed_text.cmake
# Lines that only matter to a preprocessor that includes them (#pragma once) are left out.
set(text "")
foreach(file IN LISTS FILES)
  file(READ ${file} content)
  string(REPLACE "#pragma once\n" "" content "${content}")
  # A literal has a greatest length, so each file is one of its own.
  string(APPEND text "R\"smelt_text(${content})smelt_text\"\n")
endforeach()
file(WRITE ${OUT} "#include \"codegen/cuda/source.h\"\n\nnamespace smelt::cuda {\n
const std::string& ${FUNCTION}() {\n  static const std::string* const text = new std::string(\n${text});\n  return *text;\n}\n
}  // namespace smelt::cuda\n")
