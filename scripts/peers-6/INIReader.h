// The part of the interface of inih's INIReader (release 53 and later) that XRootD 6 uses. The source
// distribution does not contain that library, and the one of Debian 12 has an older interface.
#pragma once

#include <ini.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

class INIReader {
public:
    INIReader() = default;

    explicit INIReader(const std::string &path) : _error(ini_parse(path.c_str(), ValueHandler, this)) {}

    // 0, the line of the first error, or -1 for a file that cannot be read.
    int ParseError() const { return _error; }

    const std::set<std::string> &Sections() const { return _sections; }

    std::string Get(const std::string &section, const std::string &name, const std::string &missing) const {
        auto found = _values.find(MakeKey(section, name));
        return found == _values.end() ? missing : found->second;
    }

    long GetInteger(const std::string &section, const std::string &name, long missing) const {
        std::string text = Get(section, name, "");
        char *end = nullptr;
        long number = std::strtol(text.c_str(), &end, 0);
        return end == text.c_str() ? missing : number;
    }

    bool GetBoolean(const std::string &section, const std::string &name, bool missing) const {
        std::string text = lower(Get(section, name, ""));
        if (text == "true" || text == "yes" || text == "on" || text == "1") return true;
        if (text == "false" || text == "no" || text == "off" || text == "0") return false;
        return missing;
    }

protected:
    int _error = 0;
    std::map<std::string, std::string> _values;
    std::set<std::string> _sections;

    // Names do not depend on case.
    static std::string MakeKey(const std::string &section, const std::string &name) {
        return lower(section + "=" + name);
    }

    // Takes one value. Further values of a name are lines of it.
    static int ValueHandler(void *reader, const char *section, const char *name, const char *value) {
        auto *self = static_cast<INIReader *>(reader);
        std::string &known = self->_values[MakeKey(section, name)];
        if (!known.empty()) known += "\n";
        known += value ? value : "";
        self->_sections.insert(section);
        return 1;
    }

private:
    static std::string lower(std::string text) {
        std::transform(text.begin(), text.end(), text.begin(), [](unsigned char byte) { return std::tolower(byte); });
        return text;
    }
};
