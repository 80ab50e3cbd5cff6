/* Checks the records of a batch before it is stored.
 *
 * `decode_reference.check_records` is the same in Python. Only the numbers around the values are
 * read, so that a batch of large records costs little. Every position is checked before a read.
 *
 * Numbers are as clients in Java and C decode them: a length, a count or an offset delta has 32 bits
 * in at most five bytes, a timestamp delta 64 bits in at most ten.
 */
enum { RECORD_BYTES_MIN = 6 }; /* attributes, two deltas, two lengths and the number of headers */
enum { INT_BYTES_MAX = 5, LONG_BYTES_MAX = 10 };
enum { RECORD_HEADERS_MAX = 10000 }; /* each becomes several objects for whoever reads them */

typedef const char *problem_t; /* a sentence for the user, or NULL when there is no problem */

static const char BEYOND_BATCH[] = "A record claims more bytes than its batch has.";
static const char BEYOND_RECORD[] = "A field of a record reaches beyond the record.";
static const char FIELD_LENGTH[] = "The length of a key, a value or a header is below -1.";
static const char INT_TOO_LONG[] = "A length, a count or an offset in a record is longer than 32 bits.";
static const char NUMBER_TOO_LONG[] = "A number in a record is longer than 64 bits.";
static const char HEADER_COUNT[] = "A record claims more headers than it has bytes, or less than none.";
static const char HEADERS_TOO_MANY[] = "A record has more than 10000 headers.";
static const char HEADER_NAME[] = "A record header has no name, or one that is not UTF-8.";
static const char NOT_FILLED[] = "A record's fields do not fill its length.";
static const char BYTES_LEFT[] = "A batch has bytes left after its last record.";
static const char OUT_OF_RANGE[] = "A record's time or offset does not fit 64 bits.";
static const char OFFSET_DELTA[] = "The offsets of a batch's records do not count up from zero.";

/* What is known of a batch's records when all of them were checked. */
typedef struct {
    int64_t oldest, newest; /* timestamps; -1, which means none, counts for neither */
    int32_t first_without_key; /* its index; -1 if all records have keys */
} checked_t;

/* The bytes of the character that begins here, or 0 if it is none; the table is Unicode's 3-7. */
static Py_ssize_t character_bytes(const uint8_t *at, Py_ssize_t left) {
    uint8_t first = at[0], low = 0x80, high = 0xBF;
    if (first < 0x80)
        return 1;
    Py_ssize_t count = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (first < 0xC2 || first > 0xF4 || count > left)
        return 0;
    if (first == 0xE0)
        low = 0xA0;
    else if (first == 0xED)
        high = 0x9F;
    else if (first == 0xF0)
        low = 0x90;
    else if (first == 0xF4)
        high = 0x8F;
    if (at[1] < low || at[1] > high)
        return 0;
    for (Py_ssize_t place = 2; place < count; place++) {
        if ((at[place] & 0xC0) != 0x80)
            return 0;
    }
    return count;
}

static bool is_utf8(const uint8_t *at, const uint8_t *end) {
    for (Py_ssize_t bytes; at < end; at += bytes) {
        if ((bytes = character_bytes(at, end - at)) == 0)
            return false;
    }
    return true;
}

/* A zig-zag number of at most `bytes_max` bytes that ends before `end`; `at` is moved behind it. */
static inline problem_t take_number(const uint8_t **at, const uint8_t *end, int bytes_max,
                                    int64_t *number) {
    uint64_t raw = 0;
    for (int byte = 0; byte < bytes_max; byte++) {
        if (*at >= end)
            return BEYOND_RECORD;
        uint64_t bits = *(*at)++;
        if (byte == LONG_BYTES_MAX - 1 && bits > 1)
            return NUMBER_TOO_LONG;
        raw |= (bits & 0x7F) << 7 * byte;
        if (bits < 0x80) {
            *number = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return bytes_max == INT_BYTES_MAX && raw > UINT32_MAX ? INT_TOO_LONG : NULL;
        }
    }
    return bytes_max == INT_BYTES_MAX ? INT_TOO_LONG : NUMBER_TOO_LONG;
}

static inline problem_t take_int(const uint8_t **at, const uint8_t *end, int64_t *number) {
    if (*at < end && **at < 0x80) { /* the usual case */
        uint8_t raw = *(*at)++;
        *number = (raw >> 1) ^ -(raw & 1);
        return NULL;
    }
    return take_number(at, end, INT_BYTES_MAX, number);
}

/* A length and so many bytes, which are stepped over. A length of -1 means that there is nothing; not
 * every client takes a lower one to mean the same. */
static inline problem_t take_field(const uint8_t **at, const uint8_t *end, int64_t *length) {
    problem_t problem = take_int(at, end, length);
    if (problem != NULL)
        return problem;
    if (*length > end - *at)
        return BEYOND_RECORD;
    if (*length < -1)
        return FIELD_LENGTH;
    if (*length > 0)
        *at += *length;
    return NULL;
}

static problem_t take_headers(const uint8_t **at, const uint8_t *end) {
    int64_t count, length;
    problem_t problem = take_int(at, end, &count);
    if (problem != NULL)
        return problem;
    if (count < 0 || count > end - *at)
        return HEADER_COUNT;
    if (count > RECORD_HEADERS_MAX)
        return HEADERS_TOO_MANY;
    for (; count > 0; count--) {
        if ((problem = take_field(at, end, &length)) != NULL)
            return problem;
        if (length < 0 || !is_utf8(*at - length, *at))
            return HEADER_NAME;
        if ((problem = take_field(at, end, &length)) != NULL)
            return problem;
    }
    return NULL;
}

/* One record. `first` is the lowest offset delta it may have, and becomes that of the next one. */
static inline problem_t take_record(const uint8_t **at, const uint8_t *end, bool has_gaps,
                                    int64_t *first, int64_t *shift, bool *has_key) {
    int64_t length, delta;
    problem_t problem = take_int(at, end, &length);
    if (problem != NULL)
        return problem;
    if (length < RECORD_BYTES_MIN || length > end - *at)
        return BEYOND_BATCH;
    const uint8_t *record_end = *at + length;
    *at += 1; /* attributes, which mean nothing yet */
    if ((problem = take_number(at, record_end, LONG_BYTES_MAX, shift)) != NULL ||
        (problem = take_int(at, record_end, &delta)) != NULL)
        return problem;
    if ((problem = take_field(at, record_end, &length)) != NULL)
        return problem;
    *has_key = length >= 0;
    if ((problem = take_field(at, record_end, &length)) != NULL ||
        (problem = take_headers(at, record_end)) != NULL)
        return problem;
    if (*at != record_end)
        return NOT_FILLED;
    if (delta < *first || (delta > *first && !has_gaps))
        return OFFSET_DELTA;
    *first = delta + 1;
    return NULL;
}

/* All records of a batch: as many as it announces, one after the other up to the last byte. */
static inline problem_t check_all(const uint8_t *at, Py_ssize_t size, int64_t count, bool has_gaps,
                           int64_t base_timestamp, checked_t *checked) {
    const uint8_t *end = at + size;
    int64_t next_delta = 0;
    *checked = (checked_t){INT64_MAX, -1, -1};
    if (count > size / (RECORD_BYTES_MIN + 1))
        return BEYOND_BATCH;
    for (int64_t index = 0; index < count; index++) {
        int64_t shift, timestamp;
        bool has_key;
        problem_t problem = take_record(&at, end, has_gaps, &next_delta, &shift, &has_key);
        if (problem != NULL)
            return problem;
        if (__builtin_add_overflow(base_timestamp, shift, &timestamp))
            return OUT_OF_RANGE;
        if (timestamp != -1 && timestamp < checked->oldest)
            checked->oldest = timestamp;
        if (timestamp > checked->newest)
            checked->newest = timestamp;
        if (!has_key && checked->first_without_key < 0)
            checked->first_without_key = (int32_t)index;
    }
    return at == end ? NULL : BYTES_LEFT;
}
