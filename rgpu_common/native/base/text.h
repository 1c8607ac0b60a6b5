// Small texts: what a file holds, the pieces of a list, and texts for C.
//
// Nothing that is installed uses streams of the standard library (<fstream>, <sstream>,
// <iostream>): they bring its locales with them, and each library of ours has its own copy of the
// C++ runtime. That is 0.9 MB in each of six files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rgpu::base {

// Reads at most `most` bytes from the start of a file. False: errno says why.
bool ReadText(const std::string& path, size_t most, std::string* text);

// The pieces of a list. A separator at the end of the list ends its last piece, so "a,b" and "a,b,"
// have two pieces, and "" has none.
std::vector<std::string> Pieces(std::string_view list, char separator);

// Writes the text to `out` with a NUL behind it, cut to `capacity` bytes with the NUL.
void CopyText(std::string_view text, char* out, size_t capacity);

}  // namespace rgpu::base
